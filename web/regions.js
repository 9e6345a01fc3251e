/**
 * Finds the nearest region whose nodes accept calls.
 *
 *     const region = await nearestRegion("https://eu.example.com", "https://us.example.com");
 *     const call = new VoicepipeCall({ server: region.url, tokenUrl: `/voice-token?region=${region.name}` });
 *
 * @module
 */

/**
 * @typedef {object} Region
 * @property {string} name
 * @property {string} url of its nodes
 * @property {number | null} round_trip_ms the shortest time of a request; null: it does not answer
 * @property {boolean} is_ready it accepts calls now
 */

/** Requests to each region; the first pays for the connection, so it counts only if it is the only one. */
const TRIES = 3;
const TIMEOUT_MS = 3_000;

/**
 * All regions, those that accept calls first, each group from the nearest to the farthest.
 *
 * @param {string[]} urls of any region, or of several in case that one is down: the first that answers has the list
 * @returns {Promise<Region[]>}
 * @throws {Error} none of them answers, or the server has no regions
 */
export async function regions(...urls) {
  const found = await Promise.all((await listed(urls)).map(measured));
  const far = (/** @type {Region} */ region) => region.round_trip_ms ?? Infinity;
  const farther = (/** @type {Region} */ one, /** @type {Region} */ other) => (far(one) === far(other) ? 0 : far(one) - far(other));
  return found.sort((one, other) => Number(other.is_ready) - Number(one.is_ready) || farther(one, other));
}

/**
 * The region with the shortest round trip among those that accept calls.
 *
 * @param {string[]} urls as for `regions`
 * @returns {Promise<Region>}
 * @throws {Error} as `regions`, or no region accepts calls
 */
export async function nearestRegion(...urls) {
  const [first] = await regions(...urls);
  if (!first?.is_ready) throw new Error("no region accepts calls now");
  return first;
}

/**
 * @param {string[]} urls
 * @returns {Promise<{name: string, url: string}[]>}
 */
async function listed(urls) {
  let why = "no address";
  for (const url of urls) {
    try {
      const { data } = await list(url, AbortSignal.timeout(TIMEOUT_MS));
      if (data.length) return data;
      why = `${url} has no [regions.NAME] in its settings`;
    } catch (failure) {
      why = `${url}: ${failure instanceof Error ? failure.message : failure}`;
    }
  }
  throw new Error(`no list of regions: ${why}`);
}

/**
 * @param {{name: string, url: string}} region
 * @returns {Promise<Region>}
 */
async function measured({ name, url }) {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const times_ms = [];
  let is_ready = false;
  try {
    for (let left = TRIES; left; left--) {
      const began_ms = performance.now();
      const { region, ready } = await list(url, signal);
      if (region !== name) return { name, url, round_trip_ms: null, is_ready: false };
      times_ms.push(performance.now() - began_ms);
      is_ready = ready;
    }
  } catch {
    if (!signal.aborted || !times_ms.length) return { name, url, round_trip_ms: null, is_ready: false };
  }
  return { name, url, round_trip_ms: Math.min(...(times_ms.length > 1 ? times_ms.slice(1) : times_ms)), is_ready };
}

/**
 * @param {string} url
 * @param {AbortSignal} signal
 * @returns {Promise<{region: string, ready: boolean, data: {name: string, url: string}[]}>}
 */
async function list(url, signal) {
  const answer = await fetch(new URL("/v1/regions", url), { cache: "no-store", credentials: "omit", signal });
  if (!answer.ok) throw new Error(`expected status 200, got ${answer.status}`);
  return answer.json();
}
