/**
 * The notice of stores that fail: which, since when, and what that means for callers.
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
const TROUBLES = {
  full: "no room left",
  locked: "locked by another program",
  read_only: "can only be read",
  damaged: "damaged",
  io_error: "the disk fails",
  unreachable: "out of reach",
  unknown: "fails",
};

const MEANS =
  "Calls go on and no caller is refused. What can’t be stored now waits in memory, and is stored when the store works " +
  "again; a server that ends before loses it. The log’s event storage_failed names the file and the reason.";

/**
 * @param {Trouble[]} troubles
 * @returns {Node[]} nothing while nothing is wrong
 */
export function storageNotice(troubles) {
  if (!troubles.length) return [];
  const told = troubles.map(({ store, trouble, since }) => {
    const at = new Date(since).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return `${STORES[store] ?? store} (${TROUBLES[trouble] ?? trouble}, since ${at})`;
  });
  const more = make("a", { href: "/docs/operating#when-storage-is-in-trouble" }, "What to do");
  return [
    make(
      "details",
      { id: "storage-details" },
      make("summary", {}, `▲ Storage in trouble: ${told.join("; ")}. Calls go on.`),
      make("p", {}, `${MEANS} `, more),
    ),
  ];
}
