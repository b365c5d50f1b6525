// The plan that ranks follow: what was decided and predicted, beside what steps take; the memory of
// each stage, and one step of a pipeline as a picture. All is as the planner has it but the times that
// are called measured.

import { shortSpan } from "./metrics.js";
import { byId, fill, head, setText } from "./table.js";

const SVG = "http://www.w3.org/2000/svg";
const STAGE_COLUMNS = ["stage", "layers", "ranks", "memory", "of", "forward", "backward"];
const TERM_COLUMNS = ["of a step", "predicted", "measured"];
const WIDTH = 600;
const ROW = 18;
const MOST_DRAWN = 32; // stages, and micro-batches
const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"];

function bytes(count) {
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, count)) / 10));
  return `${Number((count / 2 ** (10 * unit)).toPrecision(3))} ${UNITS[unit]}`;
}

/** The middle of what running ranks say that a step takes; null: none has said. */
function stepOf(job) {
  const times = job.ranks.map((rank) => rank.step_seconds).filter((time) => time !== null);
  times.sort((one, other) => one - other);
  return times.length > 0 ? times[Math.floor(times.length / 2)] : null;
}

function describeStep(plan, measured) {
  const predicted = `a step was predicted to take ${shortSpan(plan.step_seconds)}, limited by ${plan.limiting}`;
  if (measured === null) return `${predicted}.`;
  const part = measured / plan.step_seconds - 1;
  const beside = plan.step_seconds > 0 ? `, ${Math.abs(part * 100).toFixed(0)} % ${part < 0 ? "less" : "more"}` : "";
  return `${predicted}; steps take ${shortSpan(measured)}${beside}.`;
}

function rect(x, y, width, height, kind, text) {
  const made = document.createElementNS(SVG, "rect");
  const shape = { x, y, width: Math.max(0.5, width), height };
  for (const [name, value] of Object.entries(shape)) made.setAttribute(name, value.toFixed(1));
  made.setAttribute("class", kind);
  const title = document.createElementNS(SVG, "title");
  title.textContent = text;
  made.append(title);
  return made;
}

function resize(svg, rows) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${rows * ROW}`);
  svg.style.height = `${rows * ROW}px`;
}

function drawMemory(stages) {
  const svg = byId("plan-memory");
  resize(svg, stages.length);
  svg.replaceChildren(...stages.flatMap((stage, index) => {
    const part = stage.limit_bytes > 0 ? Math.min(1, stage.memory_bytes / stage.limit_bytes) : 0;
    const text = `stage ${index}: ${bytes(stage.memory_bytes)} of ${bytes(stage.limit_bytes)}`;
    const y = index * ROW + 2;
    return [rect(0, y, WIDTH, ROW - 4, "plan-room", text), rect(0, y, part * WIDTH, ROW - 4, part > 0.9 ? "plan-full" : "plan-used", text)];
  }));
  const fullest = Math.max(...stages.map((stage) => (stage.limit_bytes > 0 ? stage.memory_bytes / stage.limit_bytes : 0)));
  const text = `memory of a rank of each stage, from above; the fullest has ${(fullest * 100).toFixed(0)} % of what it may have`;
  svg.setAttribute("aria-label", text);
  setText(byId("plan-memory-text"), text);
}

/** What a stage does in a step, in its order: [["forward", micro-batch], ...]; null: not known. */
function orderOf(plan, stage) {
  const count = plan.micro_batches;
  const forward = (batch) => ["forward", batch];
  const backward = (batch) => ["backward", batch];
  const batches = Array.from({ length: count }, (_, batch) => batch);
  if (plan.schedule === "gpipe") return [...batches.map(forward), ...batches.map(backward)];
  if (plan.schedule !== "1f1b" || plan.chunks > 1) return null;
  const ahead = Math.min(count, plan.stages.length - stage);
  const order = batches.slice(0, ahead).map(forward);
  for (const batch of batches) {
    order.push(backward(batch));
    if (batch + ahead < count) order.push(forward(batch + ahead));
  }
  return order;
}

/** [[stage, kind, micro-batch, from, to], ...] in seconds: each begins as soon as it can. */
function pipelineOf(plan) {
  const { stages } = plan;
  const ends = new Map();
  const key = (stage, kind, batch) => `${stage} ${kind} ${batch}`;
  const left = stages.map((_, stage) => orderOf(plan, stage));
  if (left.includes(null)) return [];
  const free = stages.map(() => 0);
  const done = [];
  for (let moved = true; moved;) {
    moved = false;
    stages.forEach((stage, number) => {
      while (left[number].length > 0) {
        const [kind, batch] = left[number][0];
        const from = kind === "forward" ? number - 1 : number + 1;
        const needs = [];
        if (from >= 0 && from < stages.length) needs.push(key(from, kind, batch));
        if (kind === "backward") needs.push(key(number, "forward", batch));
        if (!needs.every((one) => ends.has(one))) return;
        const begin = Math.max(free[number], ...needs.map((one) => ends.get(one)));
        free[number] = begin + stage[`${kind}_seconds`];
        ends.set(key(number, kind, batch), free[number]);
        done.push([number, kind, batch, begin, free[number]]);
        left[number].shift();
        moved = true;
      }
    });
  }
  return done;
}

function drawPipeline(plan) {
  const figure = byId("plan-pipeline-part");
  const fits = plan.stages.length > 1 && plan.stages.length <= MOST_DRAWN && plan.micro_batches <= MOST_DRAWN;
  const done = fits ? pipelineOf(plan) : [];
  figure.hidden = done.length === 0;
  if (done.length === 0) return;
  const end = Math.max(...done.map((one) => one[4]));
  const at = (time) => (end > 0 ? (time / end) * WIDTH : 0);
  const svg = byId("plan-pipeline");
  resize(svg, plan.stages.length);
  svg.replaceChildren(...done.map(([stage, kind, batch, from, to]) => rect(
    at(from), stage * ROW + 2, at(to) - at(from) - 0.5, ROW - 4, `plan-${kind}`,
    `stage ${stage}: ${kind} of micro-batch ${batch}, ${shortSpan(to - from)}`,
  )));
  const busy = done.reduce((sum, [, , , from, to]) => sum + to - from, 0);
  const idle = end > 0 ? 1 - busy / (end * plan.stages.length) : 0;
  const batches = plan.micro_batches === 1 ? "1 micro-batch" : `${plan.micro_batches} micro-batches`;
  const text = `a step as predicted, ${plan.schedule}: ${batches} through ${plan.stages.length} stages, forward light and backward dark; stages are idle ${(idle * 100).toFixed(0)} % of ${shortSpan(end)}`;
  svg.setAttribute("aria-label", text);
  setText(byId("plan-pipeline-text"), text);
}

function stageRow(stage, index) {
  return {
    cells: [
      [String(index)],
      [stage.layers[0] + 1 === stage.layers[1] ? String(stage.layers[0]) : `${stage.layers[0]} to ${stage.layers[1] - 1}`],
      [stage.ranks, "text"],
      [bytes(stage.memory_bytes)],
      [bytes(stage.limit_bytes)],
      [shortSpan(stage.forward_seconds)],
      [shortSpan(stage.backward_seconds)],
    ],
  };
}

const termRow = ([name, predicted, measured]) => ({ cells: [[name], [shortSpan(predicted)], [shortSpan(measured)]] });

export function showPlan(job) {
  const { plan } = job;
  byId("plan").hidden = plan === null;
  if (plan === null) return;
  if (byId("plan-stage-head").cells.length === 0) {
    head(byId("plan-stage-head"), STAGE_COLUMNS);
    head(byId("plan-term-head"), TERM_COLUMNS);
  }
  setText(byId("plan-text"), `${plan.text}: ${describeStep(plan, plan.measured_seconds ?? stepOf(job))}`);
  setText(byId("plan-why"), plan.why);
  byId("plan-terms-table").hidden = plan.terms.length === 0;
  fill(byId("plan-terms"), TERM_COLUMNS, plan.terms.map(termRow));
  byId("plan-stages").hidden = plan.stages.length === 0;
  if (plan.stages.length === 0) return;
  fill(byId("plan-stage-rows"), STAGE_COLUMNS, plan.stages.map(stageRow));
  drawMemory(plan.stages);
  drawPipeline(plan);
}
