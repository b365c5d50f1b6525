// The section of the logs. It shows one of three things:
//
//   follow   the newest lines of a rank, again with each new picture of the job
//   stay     lines of a rank that the user has gone back to, or has jumped to from a match
//   found    lines of all ranks, or of one, in which a text stands
//
// The user begins with the rank of most interest, which may change, until one is chosen.

import { byId, make, setText } from "./table.js";
import { rankOfInterest } from "./sections.js";

const PATIENCE = 5000; // milliseconds
const AROUND = 4096; // bytes that are shown behind a match
const AT_END = 40; // pixels

let mode = "follow";
let chosen = null; // a place; null: the rank of most interest
let interest = 0;
let lines = []; // [where it begins in the file, its number or null, its text]
let seen = ""; // what is shown; an answer that says the same changes nothing
let absent = null; // the place that has no log

const place = () => chosen ?? interest;

function size(bytes) {
  if (bytes < 1e4) return `${bytes} bytes`;
  return bytes < 1e7 ? `${(bytes / 1e3).toFixed(0)} kB` : `${(bytes / 1e6).toFixed(0)} MB`;
}

/** The answer, or an Error that says to a person why there is none. */
async function ask(query) {
  let reply;
  try {
    reply = await fetch(`api/logs?${new URLSearchParams(query)}`, {
      cache: "no-store", signal: AbortSignal.timeout(PATIENCE),
    });
  } catch {
    throw new Error("The launcher does not answer: the logs cannot be asked for.");
  }
  const said = reply.status === 403 ? { error: "not without the token" } : await reply.json();
  if (reply.ok) return said;
  absent = reply.status === 404 ? query.place : absent;
  throw new Error(reply.status === 404 ? `No log: ${said.error}.` : said.error);
}

function lineRow([, number, text]) {
  const row = make("div", "log-line", "");
  row.append(make("span", "number", number === null ? "–" : String(number)), make("span", "said", text));
  return row;
}

function matchRow([where, at, number, text]) {
  const row = make("div", "log-line", "");
  const jump = make("button", "jump", `rank ${where}${number === null ? "" : `, line ${number}`}`);
  jump.type = "button";
  jump.addEventListener("click", () => jumpTo(where, at));
  row.append(jump, make("span", "said", text));
  return row;
}

function showLines(marked = null) {
  byId("log-box").replaceChildren(...lines.map((line) => {
    const row = lineRow(line);
    if (line[0] === marked) row.classList.add("marked");
    return row;
  }));
  byId("log-older").hidden = lines.length === 0 || lines[0][0] === 0;
}

function describe(reply) {
  if (lines.length === 0) return reply.size === 0 ? `Rank ${reply.place} has printed nothing.` : "No line.";
  const counted = lines.at(-1)[1] !== null;
  return `Rank ${reply.place}: ${size(reply.size)}${counted ? "" : "; its lines are not counted so far yet"}`;
}

function setMode(next) {
  mode = next;
  byId("log-follow").checked = next === "follow";
}

async function follow() {
  if (absent === place()) return;
  const reply = await ask({ place: place() });
  if (mode !== "follow" || reply.place !== place()) return; // The user was faster.
  const said = JSON.stringify(reply);
  if (said === seen) return;
  seen = said;
  lines = reply.lines;
  showLines();
  setText(byId("log-text"), describe(reply));
  byId("log-box").scrollTop = byId("log-box").scrollHeight;
}

async function older() {
  const first = lines[0][0];
  setMode("stay");
  const reply = await ask({ place: place(), before: first });
  if (lines[0]?.[0] !== first) return;
  const box = byId("log-box");
  const below = box.scrollHeight - box.scrollTop;
  lines = [...reply.lines, ...lines];
  showLines();
  box.scrollTop = box.scrollHeight - below;
}

async function jumpTo(where, at) {
  chosen = where;
  byId("log-place").value = String(where);
  setMode("stay");
  await guarded(async () => {
    const reply = await ask({ place: where, before: at + AROUND });
    lines = reply.lines;
    showLines(at);
    setText(byId("log-text"), describe(reply));
    byId("log-box").focus();
    byId("log-box").querySelector(".marked")?.scrollIntoView({ block: "center" });
  });
}

async function search() {
  const text = byId("log-search").value;
  if (text === "") return restart();
  setMode("found");
  const where = byId("log-everywhere").checked ? {} : { place: place() };
  const reply = await ask({ search: text, ...where });
  lines = [];
  showLines();
  byId("log-box").replaceChildren(...reply.matches.map(matchRow));
  const count = reply.matches.length;
  const parts = [`${count === 1 ? "1 line has" : `${count || "no"} lines have`} this text`];
  if (reply.older > 0) parts.push(`${reply.older} older ones are left out`);
  if (reply.unread > 0) parts.push(`${size(reply.unread)} before that were not searched`);
  setText(byId("log-text"), parts.join("; "));
}

/** The newest lines of a rank. */
async function restart() {
  seen = "";
  absent = null;
  setMode("follow");
  await follow();
}

async function guarded(task) {
  try {
    await task();
  } catch (error) {
    seen = "";
    setText(byId("log-text"), error.message);
  }
}

/** A number: a list of ten thousand ranks is slow, and no help. */
function showPlace(ranks) {
  const field = byId("log-place");
  field.max = String(Math.max(...ranks.map((rank) => rank.place)));
  if (document.activeElement !== field) field.value = String(place());
}

/** Follows a job, if the user does. */
export async function showLogs(job) {
  byId("logs").hidden = job.ranks.length === 0;
  if (job.ranks.length === 0) return;
  interest = rankOfInterest(job);
  showPlace(job.ranks);
  if (mode === "follow") await guarded(follow);
}

export function listen() {
  byId("log-place").addEventListener("change", () => {
    if (!byId("log-place").reportValidity()) return;
    chosen = Number(byId("log-place").value);
    guarded(restart);
  });
  byId("log-follow").addEventListener("change", () => {
    if (byId("log-follow").checked) guarded(restart);
    else setMode("stay");
  });
  byId("log-form").addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(search);
  });
  byId("log-search").addEventListener("input", () => {
    if (byId("log-search").value === "" && mode === "found") guarded(restart);
  });
  byId("log-older").addEventListener("click", () => guarded(older));
  const box = byId("log-box");
  box.addEventListener("scroll", () => {
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < AT_END;
    if (mode === "follow" && !isAtEnd) setMode("stay");
  });
}
