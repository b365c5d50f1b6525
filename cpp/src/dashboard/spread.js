// How ranks differ in the time of a step, and in how much of it they wait: two histograms of all ranks
// that run, for jobs with more ranks than a person compares in a table.

import { share, shortSpan } from "./metrics.js";
import { byId, fill, head, setText } from "./table.js";

const FEWEST = 8; // ranks
const BARS = 24;
const MOST_NAMED = 5; // ranks
const WIDTH = 600;
const HEIGHT = 100;
const SVG = "http://www.w3.org/2000/svg";
const COLUMNS = ["", "least", "a quarter below", "half below", "a quarter above", "most"];
const KINDS = [
  { id: "spread-step", name: "a step takes", field: "step_seconds", say: shortSpan },
  { id: "spread-wait", name: "of that a rank waits", field: "wait_share", say: share },
];

/** How many values are in each of BARS parts of equal width, from the least value to the most. */
function countsOf(values) {
  const counts = new Array(BARS).fill(0);
  const [least, most] = [values[0], values.at(-1)];
  for (const value of values) {
    const part = most > least ? ((value - least) / (most - least)) * BARS : 0;
    counts[Math.min(BARS - 1, Math.floor(part))] += 1;
  }
  return counts;
}

/** The value below which so large a part of the values is, from 0 to 1; values ascend. */
const quantile = (values, part) => values[Math.round((values.length - 1) * part)];

function bar(index, count, highest) {
  const made = document.createElementNS(SVG, "rect");
  const height = Math.max(2, (count / highest) * (HEIGHT - 4));
  const shape = { x: (index * WIDTH) / BARS + 1, y: HEIGHT - height, width: WIDTH / BARS - 2, height };
  for (const [name, value] of Object.entries(shape)) made.setAttribute(name, value.toFixed(1));
  return made;
}

function draw(svg, counts) {
  const highest = Math.max(...counts);
  const bars = counts.map((count, index) => count > 0 && bar(index, count, highest));
  svg.replaceChildren(...bars.filter(Boolean));
}

function showKind({ id, name, field, say }, ranks) {
  const values = ranks.map((rank) => rank[field]).sort((one, other) => one - other);
  const counts = countsOf(values);
  draw(byId(id), counts);
  const ends = `${say(values[0])} to ${say(values.at(-1))}`;
  byId(id).setAttribute("aria-label", `${name}: ${ends} on ${values.length} ranks`);
  setText(byId(`${id}-text`), `${name}: ${ends} from left to right, at most ${Math.max(...counts)} ranks in a bar`);
  return { cells: [[name], ...[0, 0.25, 0.5, 0.75, 1].map((part) => [say(quantile(values, part))])] };
}

/** Those for which the others wait, if anybody does, stand first. */
function nameLeast(ranks) {
  const first = [...ranks].sort((one, other) => one.wait_share - other.wait_share).slice(0, MOST_NAMED);
  return first.map((rank) => `rank ${rank.place} on ${rank.host} (${share(rank.wait_share)})`).join(", ");
}

export function showSpread(job) {
  const running = job.ranks.filter((rank) => rank.state === "running" || rank.state === "paused");
  const timed = (running.length ? running : job.ranks)
    .filter((rank) => rank.step_seconds !== null && rank.wait_share !== null);
  byId("spread").hidden = timed.length < FEWEST;
  if (timed.length < FEWEST) return;
  if (byId("spread-head").cells.length === 0) head(byId("spread-head"), COLUMNS);
  fill(byId("spread-rows"), COLUMNS, KINDS.map((kind) => showKind(kind, timed)));
  setText(byId("spread-text"), `${timed.length} ranks. Those that wait least: ${nameLeast(timed)}.`);
}
