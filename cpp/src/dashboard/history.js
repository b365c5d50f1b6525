// A job that is over, as `corro dash` shows it: a slider moves through its time.

import { byId, clock, setText, span } from "./table.js";

const NEAR = 0.01; // seconds: browsers round what a slider says

const slider = () => byId("history-time");

/** What is asked for: the time at which the slider stands; its end is the end of the job. */
export function wantedTime() {
  const isSet = slider().value !== "" && !byId("history").hidden;
  return isSet && Number(slider().max) - Number(slider().value) > NEAR ? slider().value : null;
}

/** Shows where in its history this picture of the job stands, and what of it is missing. */
export function showHistory(job) {
  const { from, to } = job.history;
  if (byId("history").hidden) {
    Object.assign(slider(), { min: from, max: to, value: to });
    byId("history").hidden = false;
  }
  const text = `${clock(job.now)}: ${span(job.now - from)} after the beginning, of ${span(to - from)}`;
  setText(byId("history-text"), text);
  slider().setAttribute("aria-valuetext", text);
}

/** Calls `show`, which may take a while, as often as the slider is moved, but never twice at once. */
export function listenToSlider(show) {
  let isBusy = false;
  slider().addEventListener("input", async () => {
    if (isBusy) return;
    isBusy = true;
    for (let shown = null; shown !== slider().value;) {
      shown = slider().value;
      await show();
    }
    isBusy = false;
  });
}
