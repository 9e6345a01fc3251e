/**
 * The notice of failing stores: which, since when, and the effect on users.
 *
 * @module
 */

import { make } from "../elements.js";

/** @typedef {{store: string, trouble: string, since: string}} Trouble */

/** @type {Record<string, string>} */
const STORES = {
  shared: "used and revoked client secrets",
  keys: "API keys",
  records: "turns’ records",
  webhooks: "webhooks",
  journals: "journals",
  audio_cache: "cached sound",
};

/** @type {Record<string, string>} */
const REASONS = {
  full: "no room left",
  locked: "locked by another program",
  read_only: "can only be read",
  damaged: "damaged",
  io_error: "the disk fails",
  unreachable: "out of reach",
  unknown: "fails",
};

const MEANS =
  "Sessions go on and no user is refused. Data that can’t be stored now waits in memory, and is stored when the store works " +
  "again; a server that ends before loses it. The log’s event storage_failed names the file and the reason.";

/**
 * @param {Trouble[]} failures
 * @returns {Node[]} empty while all stores work
 */
export function storageNotice(failures) {
  if (!failures.length) return [];
  const stores = failures.map(({ store, trouble, since }) => {
    const at = new Date(since).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return `${STORES[store] ?? store} (${REASONS[trouble] ?? trouble}, since ${at})`;
  });
  const more = make("a", { href: "/docs/operating#when-storage-is-in-trouble" }, "What to do");
  return [
    make(
      "details",
      { id: "storage-details" },
      make("summary", {}, `▲ Storage in trouble: ${stores.join("; ")}. Calls go on.`),
      make("p", {}, `${MEANS} `, more),
    ),
  ];
}
