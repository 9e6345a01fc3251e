/**
 * The notice of failing stores: which, since when, and the effect on users.
 *
 * @module
 */

import { make } from "../elements.js";

/** @typedef {{store: string, kind: string, since: string}} FailingStore */

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
const KINDS = {
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
 * @param {FailingStore[]} failures
 * @returns {Node[]} empty while all stores work
 */
export function storageNotice(failures) {
  if (!failures.length) return [];
  const stores = failures.map(({ store, kind, since }) => {
    const at = new Date(since).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return `${STORES[store] ?? store} (${KINDS[kind] ?? kind}, since ${at})`;
  });
  const more = make("a", { href: "/docs/records#when-storage-fails" }, "What to do");
  return [
    make(
      "details",
      { id: "storage-details" },
      make("summary", {}, `▲ Failing stores: ${stores.join("; ")}. Calls go on.`),
      make("p", {}, `${MEANS} `, more),
    ),
  ];
}
