// The table of ranks. Of many it has a part at a time: those of most interest, or those that are looked
// for. A browser needs seconds for ten thousand rows, and nobody reads them.

import { describeSlowest, share, shortSpan } from "./metrics.js";
import { byId, fill, head, orNothing, setText } from "./table.js";

const PART = 200; // rows
const SIGNS = {
  starting: "○", running: "●", paused: "‖", done: "✓", stopped: "■", failed: "✕", lost: "✕",
};
const COLUMNS = ["rank", "state", "step", "doing", "waits for", "host", "pid", "why"];
const TIMED_COLUMNS = [...COLUMNS.slice(0, 3), "step takes", "of that waits", ...COLUMNS.slice(3)];

export const runs = (rank) => rank.state === "running" || rank.state === "paused";

let shown = null; // The job, as it was shown last.
let first = 0; // Of the rows, the first one of the part.

function nameOf(rank) {
  const other = rank.rank !== null && rank.rank !== rank.place;
  return other ? `${rank.place} (now ${rank.rank})` : String(rank.place);
}

function timeCells(rank) {
  return [
    [rank.step_seconds === null ? "" : shortSpan(rank.step_seconds)],
    [rank.wait_share === null ? "" : share(rank.wait_share)],
  ];
}

function rankRow(rank, awaited, isTimed) {
  const doing = [rank.operation, rank.phase].filter((part) => part !== null).join(", ");
  const isAwaited = awaited.has(rank.place);
  return {
    name: isAwaited ? "awaited" : "",
    cells: [
      [nameOf(rank)],
      [`${SIGNS[rank.state] ?? ""} ${rank.state}${isAwaited ? ", awaited" : ""}`, `state ${rank.state}`],
      [orNothing(rank.step)],
      ...(isTimed ? timeCells(rank) : []),
      [doing, "text"],
      [rank.awaits === null ? "" : `rank ${rank.awaits}`],
      [rank.host, "name"],
      [orNothing(rank.pid)],
      [orNothing(rank.cause), "text"],
    ],
  };
}

function awaitedIn(job) {
  const waiting = job.state === "waiting" ? job.ranks : [];
  return new Set(waiting.map((rank) => rank.awaits).filter((place) => place !== null));
}

/** Less is more interesting. */
function interest(rank, awaited) {
  if (rank.state === "failed" || rank.state === "lost") return 0;
  if (awaited.has(rank.place)) return 1;
  return rank.state === "paused" || rank.state === "stopped" ? 2 : 3;
}

function isLookedFor(rank, text) {
  if (text === "" || text === String(rank.place)) return true;
  return [rank.host, rank.state, orNothing(rank.cause), orNothing(rank.operation)].some((part) => part.includes(text));
}

/** Those that are looked for; of many the most interesting first. */
function chosen(job, awaited) {
  if (job.ranks.length <= PART) return job.ranks;
  const text = byId("rank-search").value.trim();
  const found = job.ranks.filter((rank) => isLookedFor(rank, text));
  return found.sort((one, other) => interest(one, awaited) - interest(other, awaited));
}

function showPart(job, found) {
  byId("rank-form").hidden = job.ranks.length <= PART;
  byId("rank-before").disabled = first === 0;
  byId("rank-after").disabled = first + PART >= found.length;
  const part = found.length === 0 ? "none" : `${first + 1} to ${Math.min(first + PART, found.length)}`;
  setText(byId("rank-part"), `${part} of ${found.length}, those that failed or are awaited first`);
}

export function showRanks(job) {
  shown = job;
  const awaited = awaitedIn(job);
  const isTimed = job.ranks.some((rank) => rank.step_seconds !== null);
  const columns = isTimed ? TIMED_COLUMNS : COLUMNS;
  if (byId("rank-head").cells.length !== columns.length) head(byId("rank-head"), columns);
  const found = chosen(job, awaited);
  if (first >= found.length) first = 0;
  const part = found.slice(first, first + PART);
  fill(byId("ranks"), columns, part.map((rank) => rankRow(rank, awaited, isTimed)));
  showPart(job, found);
  const running = job.ranks.filter(runs);
  setText(byId("ranks-text"), describeSlowest(running.length ? running : job.ranks));
}

function goTo(index) {
  first = Math.max(0, index);
  if (shown !== null) showRanks(shown);
}

export function listenToRanks() {
  byId("rank-form").addEventListener("submit", (event) => event.preventDefault());
  byId("rank-search").addEventListener("input", () => goTo(0));
  byId("rank-before").addEventListener("click", () => goTo(first - PART));
  byId("rank-after").addEventListener("click", () => goTo(first + PART));
}
