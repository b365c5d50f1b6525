// Steps per second over time, as a line in an SVG.

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

export function drawRates(svg, rates) {
  svg.replaceChildren();
  if (rates.length < 2) return;
  const [start, end] = [rates[0][0], rates[rates.length - 1][0]];
  const most = Math.max(...rates.map(([, rate]) => rate)) || 1;
  const points = rates.map(([time, rate]) => {
    const x = ((time - start) / (end - start || 1)) * WIDTH;
    const y = HEIGHT - 2 - (rate / most) * (HEIGHT - 6);
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  const line = `M${points.join("L")}`;
  svg.append(path("rate-area", `${line}V${HEIGHT}H0Z`), path("rate-line", line));
}
