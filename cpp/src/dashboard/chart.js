// Numbers over time, as a line in an SVG.

const WIDTH = 600;
const HEIGHT = 100;
const WINDOW = 3; // seconds over which a rate is taken
const SVG = "http://www.w3.org/2000/svg";

/** [[time, rate], ...] of [[time, step], ...]. A step that falls is of a job that has gone back. */
export function ratesOf(steps) {
  const rates = [];
  let first = 0;
  for (let i = 1; i < steps.length; ++i) {
    while (first + 1 < i && steps[i][0] - steps[first + 1][0] >= WINDOW) ++first;
    const [time, step] = steps[i];
    const seconds = time - steps[first][0];
    if (seconds > 0) rates.push([time, Math.max(0, (step - steps[first][1]) / seconds)]);
  }
  return rates;
}

function path(name, shape) {
  const made = document.createElementNS(SVG, "path");
  made.setAttribute("class", name);
  made.setAttribute("d", shape);
  return made;
}

/** "M...L...": a gap where a value is no finite number. */
function lineOf(points, x, y) {
  let isNew = true;
  return points.map(([time, value]) => {
    const isShown = Number.isFinite(value);
    const part = isShown ? `${isNew ? "M" : "L"}${x(time).toFixed(1)} ${y(value).toFixed(1)}` : "";
    isNew = !isShown;
    return part;
  }).join("");
}

/** Draws [[time, value], ...], from their least value (or `from`) to the greatest. */
export function drawLine(svg, points, from = Infinity) {
  svg.replaceChildren();
  const values = points.map(([, value]) => value).filter(Number.isFinite);
  if (values.length < 2) return;
  const [start, end] = [points[0][0], points[points.length - 1][0]];
  const [least, most] = [Math.min(from, ...values), Math.max(...values)];
  const x = (time) => ((time - start) / (end - start || 1)) * WIDTH;
  const y = (value) => HEIGHT - 3 - ((value - least) / (most - least || 1)) * (HEIGHT - 7);
  svg.append(path("line", lineOf(points, x, y)));
}

export function drawRates(svg, rates) {
  drawLine(svg, rates, 0);
  const line = svg.firstChild?.getAttribute("d");
  if (line) svg.prepend(path("rate-area", `${line}V${HEIGHT}H0Z`));
}
