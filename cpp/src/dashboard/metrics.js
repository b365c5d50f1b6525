// How far the training is, and what ranks log: numbers, and their courses over the job's time.

import { drawLine } from "./chart.js";
import { byId, make, setText, span } from "./table.js";

const SLOW = 0.1; // So much less of a step does the slowest rank wait than most ranks do.
const WHOLE = 1e9; // Whole numbers below are shown with all their digits.

/** Of a number, or of "NaN", "Infinity" and "-Infinity", which JSON has as texts. */
export function numberText(value) {
  const number = Number(value);
  if (Number.isInteger(number) && Math.abs(number) < WHOLE) return String(number);
  return Number.isFinite(number) ? String(Number(number.toPrecision(4))) : String(number);
}

export function shortSpan(seconds) {
  if (seconds >= 1) return `${numberText(seconds)} s`;
  return seconds >= 1e-3 ? `${numberText(seconds * 1e3)} ms` : `${numberText(seconds * 1e6)} µs`;
}

export const share = (part) => `${(part * 100).toFixed(0)} %`;

function eta(seconds) {
  if (seconds < 90) return `about ${seconds.toFixed(0)} s`;
  if (seconds < 90 * 60) return `about ${(seconds / 60).toFixed(0)} min`;
  if (seconds < 48 * 3600) return `about ${(seconds / 3600).toFixed(0)} h`;
  return `about ${(seconds / 86400).toFixed(0)} days`;
}

/** [[name, value], ...] for the facts. */
export function progressFacts({ progress }) {
  if (!progress) return [["step", "–"]];
  if (progress.of === null) return [["step", String(progress.step)]];
  const left = progress.eta_seconds === null ? [] : [["left", eta(progress.eta_seconds)]];
  return [["step", `${progress.step} of ${progress.of}`], ...left];
}

export function showProgress({ progress }) {
  const bar = byId("progress");
  bar.hidden = !progress || progress.of === null;
  if (bar.hidden) return;
  bar.max = progress.of;
  bar.value = Math.min(progress.step, progress.of);
  const left = progress.eta_seconds === null ? "" : `, ${eta(progress.eta_seconds)} left`;
  bar.setAttribute("aria-valuetext", `step ${progress.step} of ${progress.of}${left}`);
}

/** The sentence on the rank for which the others wait in each step; "": there is none. */
export function describeSlowest(ranks) {
  const known = ranks.filter((rank) => rank.wait_share !== null);
  const [slowest, ...others] = known.sort((one, other) => one.wait_share - other.wait_share);
  if (others.length === 0) return "";
  const most = others[Math.floor(others.length / 2)].wait_share;
  if (most - slowest.wait_share < SLOW) return "";
  return `The others wait for rank ${slowest.place} in each step: it waits ${share(slowest.wait_share)} of the time, most ranks ${share(most)}.`;
}

function newCard(name) {
  const card = make("figure", "metric", "");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 600 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  card.append(make("figcaption", "", name), make("b", "", ""), make("span", "spread", ""), svg, make("p", "", ""));
  card.dataset.name = name;
  return card;
}

function showCard(card, metric) {
  const [, value, spread, svg, text] = card.children;
  setText(value, numberText(metric.mean));
  const differ = metric.least !== metric.most;
  setText(spread, differ ? `${numberText(metric.least)} to ${numberText(metric.most)} on ${metric.ranks} ranks` : "");
  const points = metric.points.map(([time, , number]) => [time, Number(number)]);
  drawLine(svg, points);
  const numbers = points.map(([, number]) => number).filter(Number.isFinite);
  const range = numbers.length < 2 ? "one value yet"
    : `${numberText(Math.min(...numbers))} to ${numberText(Math.max(...numbers))} over ${span(points.at(-1)[0] - points[0][0])}`;
  setText(text, `step ${metric.step}; ${range}`);
  svg.setAttribute("aria-label", `${metric.name} over time: ${range}`);
}

export function showMetrics({ metrics }) {
  byId("metrics").hidden = metrics.length === 0;
  const box = byId("metric-cards");
  const cards = new Map([...box.children].map((card) => [card.dataset.name, card]));
  const shown = metrics.map((metric) => {
    const card = cards.get(metric.name) ?? newCard(metric.name);
    showCard(card, metric);
    return card;
  });
  if (shown.some((card, index) => box.children[index] !== card) || shown.length !== box.children.length)
    box.replaceChildren(...shown);
}
