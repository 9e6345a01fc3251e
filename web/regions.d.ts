/** Types of `regions.js`, for programs that import it. */

export interface Region {
  readonly name: string;
  /** The address of its nodes. */
  readonly url: string;
  /** The shortest time of a request; null: it does not answer. */
  readonly round_trip_ms: number | null;
  /** It accepts calls now. */
  readonly is_ready: boolean;
}

/**
 * All regions, those that accept calls first, each group from the nearest to the farthest.
 *
 * @param urls of any region, or of several in case that one is down: the first that answers has the list
 */
export function regions(...urls: string[]): Promise<Region[]>;

/** The region with the shortest round trip among those that accept calls. */
export function nearestRegion(...urls: string[]): Promise<Region>;
