// The section of members and time, with checkpoints and faults: what sections.js makes of events.

import { CAUSES, checkpointsOf, epochsOf, faultsOf, lostTime } from "./sections.js";
import { byId, clock, fill, head, orNothing, setText, span } from "./table.js";

const EPOCH_COLUMNS = ["epoch", "since", "for", "ranks", "came", "went", "why"];
const LOST_COLUMNS = ["lost by", "times", "time", "share"];
const CHECKPOINT_COLUMNS = ["time", "step", "ranks", "folder"];
const FAULT_COLUMNS = ["time", "event", "rank", "host", "step", "cause"];
const MOST_EVENTS = 1000; // of /api/job
const MOST_ROWS = 50;
const WIDTH = 600;
const HEIGHT = 20;
const SVG = "http://www.w3.org/2000/svg";

const percent = (part) => `${(100 * part).toFixed(1)} %`;

function seconds(time) {
  if (time < 1) return `${(time * 1000).toFixed(0)} ms`;
  return time < 10 ? `${time.toFixed(1)} s` : span(time);
}

function bar(kind, x, width) {
  const made = document.createElementNS(SVG, "rect");
  const shape = { class: kind, x: x.toFixed(2), y: 0, width: Math.max(width, 1).toFixed(2), height: HEIGHT };
  for (const [name, value] of Object.entries(shape)) made.setAttribute(name, value);
  return made;
}

/** Time from left to right, with a mark where an epoch begins. */
function drawTime(svg, parts, epochs) {
  const [begin, end] = [parts[0][1], parts.at(-1)[2]];
  const x = (time) => ((time - begin) / (end - begin || 1)) * WIDTH;
  svg.replaceChildren(
    ...parts.map(([cause, from, to]) => bar(`time-${cause}`, x(from), x(to) - x(from))),
    ...epochs.slice(1).map(({ from }) => bar("time-mark", x(from), 1)),
  );
}

function epochRow({ epoch, from, to, ranks, came, went, why }) {
  return { cells: [
    [String(epoch)], [clock(from)], [seconds(to - from)], [ranks === undefined ? "" : String(ranks)],
    [came.map((place) => `rank ${place}`).join(", "), "text"], [went.join("; "), "text"], [why, "text"],
  ] };
}

function showTime(job) {
  const epochs = epochsOf(job);
  const { parts, causes, seconds: all, goodput } = lostTime(job);
  const since = job.events.length < MOST_EVENTS ? "" : `, since ${clock(parts[0][1])}: older events are gone`;
  const text = `${percent(goodput)} of ${seconds(all)} were not lost, as far as the events tell it${since}`;
  setText(byId("goodput"), text);
  byId("time").setAttribute("aria-label", text);
  if (parts.length > 0) drawTime(byId("time"), parts, epochs);
  fill(byId("lost"), LOST_COLUMNS, causes.map((one) => ({ cells: [
    [CAUSES.get(one.cause), `time-${one.cause}`], [String(one.times)], [seconds(one.seconds)],
    [percent(all > 0 ? one.seconds / all : 0)],
  ] })));
  byId("epochs-table").hidden = epochs.length < 2;
  fill(byId("epochs"), EPOCH_COLUMNS, epochs.slice(-MOST_ROWS).reverse().map(epochRow));
}

/** The newest ones first; the part of the page is hidden while there are none. */
function showList(name, columns, all, row) {
  byId(`${name}-part`).hidden = all.length === 0;
  const shown = all.slice(-MOST_ROWS).reverse();
  const more = all.length - shown.length;
  setText(byId(`${name}-text`), `${all.length}, the newest first${more > 0 ? `; ${more} older ones are left out` : ""}`);
  fill(byId(name), columns, shown.map(row));
}

export function showMembers(job) {
  byId("members").hidden = job.events.length === 0;
  if (job.events.length === 0) return;
  showTime(job);
  showList("checkpoints", CHECKPOINT_COLUMNS, checkpointsOf(job.events), (one) => ({ cells: [
    [clock(one.time)], [orNothing(one.step)], [String(one.ranks)], [orNothing(one.folder), "text"],
  ] }));
  showList("faults", FAULT_COLUMNS, faultsOf(job.events), (one) => ({ cells: [
    [clock(one.time)], [one.kind, `kind ${one.kind}`], [orNothing(one.place ?? one.rank)],
    [orNothing(one.host), "name"], [orNothing(one.step)], [orNothing(one.cause), "text"],
  ] }));
}

export function prepare() {
  head(byId("lost-head"), LOST_COLUMNS);
  head(byId("epoch-head"), EPOCH_COLUMNS);
  head(byId("checkpoint-head"), CHECKPOINT_COLUMNS);
  head(byId("fault-head"), FAULT_COLUMNS);
}
