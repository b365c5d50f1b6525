// What goes from host to host: a table with a row for each host that sends and a column for each that
// receives; of many hosts, the pairs over which most goes.

import { byId, fill, head, setText } from "./table.js";

const MOST_HOSTS = 16; // of a matrix
const MOST_PAIRS = 20;
const SHADES = 4;
const LIST = ["from", "to", "now", "in all"];
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** "1.5 MB": three digits at most. */
export function amount(bytes) {
  const size = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  const value = bytes / 1000 ** size;
  return `${value < 10 && size > 0 ? value.toFixed(1) : Math.round(value)} ${UNITS[size]}`;
}

const nameOf = (host) => host ?? "others";
const rate = (link) => `${amount(link.bytes_per_second)}/s`;

/** How strongly a cell is marked: 0 (nothing goes) to SHADES, by powers of two below the most. */
function shadeOf(link, most) {
  if (!(link.bytes_per_second > 0)) return 0;
  return Math.max(1, SHADES - Math.floor(Math.log2(most / link.bytes_per_second)));
}

function matrixRow(from, hosts, links, most) {
  const cells = hosts.map((to) => {
    const link = links.find((one) => nameOf(one.from) === from && nameOf(one.to) === to);
    if (!link) return ["–"];
    return [`${rate(link)}, ${amount(link.bytes)} in all`, `shade-${shadeOf(link, most)}`];
  });
  return { cells: [[from, "name"], ...cells] };
}

/** Another number of columns needs new rows. */
function begin(columns) {
  if (byId("link-head").cells.length !== columns.length) byId("link-rows").replaceChildren();
  head(byId("link-head"), columns);
}

function showMatrix(hosts, links, most) {
  const columns = ["from \\ to", ...hosts];
  begin(columns);
  fill(byId("link-rows"), columns, hosts.map((from) => matrixRow(from, hosts, links, most))
    .filter(({ cells }) => cells.slice(1).some(([text]) => text !== "–")));
}

function showBusiest(links) {
  begin(LIST);
  const first = [...links].sort((one, other) =>
    other.bytes_per_second - one.bytes_per_second || other.bytes - one.bytes).slice(0, MOST_PAIRS);
  fill(byId("link-rows"), LIST, first.map((link) => ({
    cells: [[nameOf(link.from), "name"], [nameOf(link.to), "name"], [rate(link)], [amount(link.bytes)]],
  })));
}

export function showLinks({ links }) {
  byId("links").hidden = links.length === 0;
  if (links.length === 0) return;
  const hosts = [...new Set(links.flatMap((link) => [nameOf(link.from), nameOf(link.to)]))].sort();
  const most = Math.max(...links.map((link) => link.bytes_per_second));
  const isMatrix = hosts.length <= MOST_HOSTS;
  if (isMatrix) showMatrix(hosts, links, most);
  else showBusiest(links);
  const busiest = links.find((link) => link.bytes_per_second === most);
  setText(byId("links-text"), [
    most > 0 ? `Most goes from ${nameOf(busiest.from)} to ${nameOf(busiest.to)}: ${rate(busiest)}.` : "Nothing goes now.",
    isMatrix ? "" : `${hosts.length} hosts; the ${MOST_PAIRS} pairs over which most goes.`,
    "Rates are of the last ten seconds. What ranks of a host pass in memory that they share is not counted.",
  ].filter(Boolean).join(" "));
}
