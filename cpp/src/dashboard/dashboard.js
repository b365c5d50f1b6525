// Asks for the job once a second and shows it; one that is over, whenever another time is wanted.

import { drawRates, ratesOf } from "./chart.js";
import { listenToSlider, showHistory, wantedTime } from "./history.js";
import { listenToQuestions, showInspection } from "./inspect.js";
import { showLinks } from "./links.js";
import { listen, showLogs } from "./logs.js";
import { prepare, showMembers } from "./members.js";
import { progressFacts, showMetrics, showProgress } from "./metrics.js";
import { showPlan } from "./plan.js";
import { listenToRanks, runs, showRanks } from "./ranks.js";
import { showSpread } from "./spread.js";
import { byId, clock, facts, fill, head, orNothing, setText, span } from "./table.js";
import { showTables } from "./tables.js";

const PAUSE = 1000; // milliseconds
const PATIENCE = 5000;
const SHOWN_EVENTS = 200;
const EVENT_COLUMNS = ["time", "event", "rank", "host", "step", "cause"];

const isOver = (job) => job.state === "done" || job.state === "failed";

function rateText(rate) {
  return rate === undefined ? "–" : `${rate >= 10 ? rate.toFixed(0) : rate.toPrecision(2)} / s`;
}

function causeOf(event) {
  const isLonger = event.kind !== "waiting" || event.cause !== null;
  return isLonger ? orNothing(event.cause) : "nobody waits for it any more";
}

function eventRow(event) {
  const place = event.place ?? event.rank;
  const kind = event.kind === "stopped" ? "stopped-job" : event.kind;
  return {
    cells: [
      [clock(event.time)],
      [event.kind, `kind ${kind}`],
      [orNothing(place)],
      [orNothing(event.host), "name"],
      [orNothing(event.step)],
      [causeOf(event), "text"],
    ],
  };
}

function showRates(job) {
  const rates = ratesOf(job.steps);
  drawRates(byId("rate"), rates);
  const now = rates.at(-1)?.[1];
  const most = rates.length ? Math.max(...rates.map(([, rate]) => rate)) : undefined;
  const text = rates.length < 2
    ? "No steps yet: a program tells them by corro.set_step() or corro.log()."
    : `${isOver(job) ? "at last" : "now"} ${rateText(now)}, at most ${rateText(most)}, over the last ${span(rates.at(-1)[0] - rates[0][0])}`;
  setText(byId("rate-text"), text);
  byId("rate").setAttribute("aria-label", text);
  return now;
}

function show(job) {
  document.title = `${job.state} · ${job.command} · corro`;
  setText(byId("command"), job.command);
  setText(byId("summary"), job.summary);
  byId("summary").className = job.state;
  const rate = showRates(job);
  facts(byId("facts"), [
    ["job is", job.state],
    ["ranks running", String(job.ranks.filter(runs).length)],
    ...progressFacts(job),
    ["speed", isOver(job) ? "–" : rateText(rate)],
    ["epoch", String(job.epoch)],
    ["running for", span(job.now - job.started)],
  ]);
  showRanks(job);
  showSpread(job);
  showPlan(job);
  showLinks(job);
  showTables(job);
  showMetrics(job);
  showProgress(job);
  showMembers(job);
  showInspection(job, isOver(job));
  const newest = job.events.slice(-SHOWN_EVENTS).reverse();
  fill(byId("events"), EVENT_COLUMNS, newest.map(eventRow));
  const more = job.events.length - newest.length;
  setText(byId("events-text"), `the newest first${more > 0 ? `; ${more} older ones are in the JSON` : ""}`);
}

function complain(text) {
  setText(byId("trouble"), text);
  byId("trouble").hidden = text === "";
}

let answered = null;

async function ask() {
  const time = wantedTime();
  const path = time === null ? "api/job" : `api/job?at=${time}`;
  const reply = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (reply.status === 403) {
    complain("The launcher does not know this browser: open the whole address that corro run, or corro dash, has printed.");
    return false;
  }
  if (!reply.ok) throw new Error(`status ${reply.status}`);
  const job = await reply.json();
  answered = job.now;
  show(job);
  await showLogs(job);
  if (job.history) {
    showHistory(job);
    complain(job.history.note ?? "");
    return true;
  }
  complain(isOver(job) ? "The job is over. This is how it ended; nothing changes here any more." : "");
  return isOver(job);
}

async function poll() {
  let last = false;
  try {
    last = await ask();
  } catch {
    const since = answered === null ? "" : ` since ${clock(answered)}; what is below is from then`;
    complain(`The launcher does not answer${since}. The job has ended, or the way there is cut.`);
  }
  if (!last) setTimeout(poll, PAUSE);
}

head(byId("event-head"), EVENT_COLUMNS);
prepare();
listen();
listenToRanks();
listenToQuestions();
listenToSlider(poll);
poll();
