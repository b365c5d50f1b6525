// The tables of a job's parameter server: of each what all its servers have, and below it each server's
// part.

import { amount } from "./links.js";
import { shortSpan } from "./metrics.js";
import { byId, fill, head, setText } from "./table.js";

const COLUMNS = ["table", "server", "host", "rows", "memory", "shards", "steps", "pulls", "rows pulled", "rows pushed", "99 of 100 pulls within"];
const MOST_SERVERS = 16; // of a table that has a row for each
const COUNTS = ["rows", "bytes", "shards", "pulls_per_second", "pulled_rows_per_second", "pushed_rows_per_second"];

/** "12 300": a whole number with spaces between thousands. */
const whole = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, " ");
const perSecond = (number) => `${number < 10 ? Number(number.toPrecision(2)) : whole(number)}/s`;

function cellsOf(part, server, host) {
  return [
    [part.table, "name"], [server], [host, "name"], [whole(part.rows)], [amount(part.bytes)], [whole(part.shards)],
    [whole(part.steps)], [perSecond(part.pulls_per_second)], [perSecond(part.pulled_rows_per_second)],
    [perSecond(part.pushed_rows_per_second)], [part.pull_p99_seconds > 0 ? shortSpan(part.pull_p99_seconds) : "–"],
  ];
}

/** Added up over its servers, but for the steps, which all take, and the slowest server's time. */
function sumOf(parts) {
  const sum = { table: parts[0].table };
  for (const count of COUNTS) sum[count] = parts.reduce((all, part) => all + part[count], 0);
  for (const count of ["steps", "pull_p99_seconds"]) sum[count] = Math.max(...parts.map((part) => part[count]));
  return sum;
}

function rowsOf(parts) {
  if (parts.length === 1) return [{ cells: cellsOf(parts[0], String(parts[0].server), parts[0].host) }];
  const all = { name: "sum", cells: cellsOf(sumOf(parts), `all ${parts.length}`, "") };
  if (parts.length > MOST_SERVERS) return [all];
  return [all, ...parts.map((part) => ({ cells: cellsOf(part, String(part.server), part.host) }))];
}

export function showTables({ tables }) {
  byId("tables").hidden = tables.length === 0;
  if (tables.length === 0) return;
  if (byId("table-head").cells.length === 0) head(byId("table-head"), COLUMNS);
  const names = [...new Set(tables.map((part) => part.table))];
  fill(byId("table-rows"), COLUMNS, names.flatMap((name) => rowsOf(tables.filter((part) => part.table === name))));
  const rows = tables.reduce((all, part) => all + part.rows, 0);
  const bytes = tables.reduce((all, part) => all + part.bytes, 0);
  setText(byId("tables-text"), `${names.length === 1 ? "1 table" : `${names.length} tables`}: ${whole(rows)} rows, replicas among them, in ${amount(bytes)} of memory. Rates are of the last ten seconds.`);
}
