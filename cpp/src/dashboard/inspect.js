// The section that asks the ranks: where they are in their program (stacks), and what they did in their
// last steps (a trace, as a file). One question at a time; what was answered last stays, for all who look.

import { byId, clock, make, setText } from "./table.js";

const PAUSE = 300; // milliseconds, between two looks for an answer
const PATIENCE = 5000;
const NAMES = { stacks: "stacks", trace: "the trace" };

let isBusy = false;
let isFirst = true;

/** The answer, or an Error that says to a person why there is none. */
async function request(what, method) {
  const steps = what === "trace" && method === "POST" ? `?steps=${byId("trace-steps").value}` : "";
  let reply;
  try {
    reply = await fetch(`api/${what}${steps}`, {
      method, cache: "no-store", signal: AbortSignal.timeout(PATIENCE),
    });
  } catch {
    throw new Error("The launcher does not answer.");
  }
  if (reply.status === 403) throw new Error(await reply.text());
  const said = await reply.json();
  if (!reply.ok) throw new Error(said.error);
  return said;
}

/** Ranks that do the same, from one line without a margin to the next. */
function groupsOf(text) {
  return text.trimEnd().split(/\n(?=\S)/).map((group) => group.split("\n"));
}

function stackOf([ranks, ...frames]) {
  const made = document.createElement("details");
  made.open = true;
  made.append(make("summary", "", ranks));
  if (frames.length) made.append(make("pre", "stack", frames.join("\n")));
  return made;
}

function showStacks({ asked, text }) {
  byId("stacks").replaceChildren(...(text ? groupsOf(text).map(stackOf) : []));
  return `Stacks of ${clock(asked)}; ranks that do the same stand together.`;
}

/** Has the browser keep the file. */
function keepTrace({ asked }) {
  const link = make("a", "", "");
  Object.assign(link, { href: "api/trace.json", download: "corro-trace.json" });
  link.click();
  return `The trace of ${clock(asked)} is a file of this browser now, corro-trace.json: open it at ui.perfetto.dev.`;
}

const say = (text) => setText(byId("inspect-text"), text);

async function answerTo(what) {
  let said = await request(what, "POST");
  while (said.state === "asked") {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    said = await request(what, "GET");
  }
  if (said.why !== null) throw new Error(said.why);
  return said;
}

async function inspect(what) {
  if (isBusy) return;
  isBusy = true;
  say(`The ranks are asked for ${NAMES[what]}.`);
  try {
    const said = await answerTo(what);
    say(what === "stacks" ? showStacks(said) : keepTrace(said));
  } catch (trouble) {
    say(`No answer: ${trouble.message}`);
  }
  isBusy = false;
}

/** What somebody has asked before this page was opened. */
async function showEarlier() {
  try {
    const said = await request("stacks", "GET");
    if (said.state === "answered" && !isBusy) say(showStacks(said));
  } catch {
    // Whoever wants to know asks, and is told.
  }
}

export function listenToQuestions() {
  byId("ask-stacks").addEventListener("click", () => inspect("stacks"));
  byId("trace-form").addEventListener("submit", (event) => {
    event.preventDefault();
    inspect("trace");
  });
}

export function showInspection(job, isOver) {
  const canAsk = !isOver && !job.history;
  byId("inspect").hidden = !canAsk && byId("stacks").childElementCount === 0;
  for (const name of ["ask-stacks", "ask-trace"]) byId(name).disabled = !canAsk;
  if (canAsk && isFirst) showEarlier();
  isFirst = false;
}
