// What a job's events tell of its members, its lost time, its checkpoints and its faults. Pure: of a
// job as /api/job has it, and nothing else. Events are in the order in which they have happened.

const FAULTS = ["lost", "server_lost", "fenced", "stopped", "failure"];
/** Why no step is done, the cause that counts first, with its name for people. */
export const CAUSES = new Map([
  ["opening", "opening: ranks start and meet"],
  ["changing", "change of members: a new epoch comes"],
  ["waiting", "waiting for a rank"],
]);

/** The place of the rank that failed, else of one that is awaited, else 0. */
export function rankOfInterest(job) {
  const failure = job.events.findLast((event) => event.kind === "failure" && event.place !== null);
  if (failure) return failure.place;
  const failed = job.ranks.find((rank) => rank.state === "failed" || rank.state === "lost");
  if (failed) return failed.place;
  const waits = job.state === "waiting" && job.ranks.find((rank) => rank.awaits !== null);
  return waits ? waits.awaits : job.ranks[0]?.place ?? 0;
}

/**
 * [{epoch, from, to, ranks, came, went, why}, ...]: from and to in seconds since 1970, how many ranks
 * it had, and of the change by which it began the places that came, what went with its reason, and
 * why. An epoch ends where the next one is prepared.
 */
export function epochsOf(job) {
  const hosts = new Map(); // of the members, by place
  const first = { epoch: job.events[0]?.epoch ?? 0, from: job.started, came: [], went: [], why: "the job begins" };
  const epochs = [first];
  let [went, why] = [[], ""];
  const leave = (place, cause) => {
    if (hosts.delete(place)) went.push(cause === null ? `rank ${place}` : `rank ${place}: ${cause}`);
  };
  for (const event of job.events) {
    const last = epochs.at(-1);
    if (event.kind === "joined" && event.place !== null) {
      if (!hosts.has(event.place) && last !== first) last.came.push(event.place);
      hosts.set(event.place, event.host);
      last.ranks = hosts.size;
    } else if (event.kind === "ended" || event.kind === "fenced") {
      leave(event.place, event.cause);
    } else if (event.kind === "lost") {
      const cause = `host ${event.host} was lost`;
      for (const [place, host] of [...hosts]) if (host === event.host) leave(place, cause);
    } else if (event.kind === "prepare") {
      last.to ??= event.time;
      why = event.cause ?? "";
    } else if (event.kind === "epoch") {
      last.to ??= event.time;
      epochs.push({ epoch: event.epoch, from: event.time, came: [], went, why, ranks: hosts.size });
      went = [];
    }
  }
  epochs.at(-1).to ??= job.now;
  return epochs;
}

/** When all ranks that were started at the beginning were in the job. */
function endOfOpening(job) {
  const out = new Set();
  let last = null;
  for (const { kind, place, time } of job.events) {
    if (kind === "prepare" || kind === "stopped" || kind === "failure") return time;
    if (kind === "started") out.add(place);
    if (kind === "joined" || kind === "ended") out.delete(place);
    if (["started", "joined", "ended"].includes(kind)) last = time;
    if (kind !== "started" && out.size === 0) return time;
  }
  const joins = job.events.some((event) => event.kind === "joined");
  return joins || last === null ? job.now : last; // Not every program calls corro.init().
}

/** [[cause, from, to], ...], which may lie above each other. */
function lostSpans(job) {
  const spans = job.events.length < 2 || job.events[0].kind !== "started" ? []
    : [["opening", job.started, endOfOpening(job)]];
  const open = new Map(); // since when, by cause
  const close = (cause, time) => {
    if (open.has(cause)) spans.push([cause, open.get(cause), time]);
    open.delete(cause);
  };
  for (const { kind, cause, time } of job.events) {
    if (kind === "waiting" && cause !== null && !open.has("waiting")) open.set("waiting", time);
    if (kind === "waiting" && cause === null) close("waiting", time);
    if (kind === "prepare") {
      close("waiting", time);
      if (!open.has("changing")) open.set("changing", time);
    }
    if (kind === "epoch") close("changing", time);
    if (kind === "stopped" || kind === "failure") for (const name of CAUSES.keys()) close(name, time);
  }
  for (const name of CAUSES.keys()) close(name, job.now);
  return spans;
}

/** [[cause, from, to], ...] behind each other, without gaps; "training" where nothing was lost. */
function lineUp(spans, begin, end) {
  const clip = (time) => Math.min(Math.max(time, begin), end);
  const times = [...new Set([begin, end, ...spans.flatMap(([, from, to]) => [clip(from), clip(to)])])];
  times.sort((one, other) => one - other);
  const parts = [];
  for (let i = 1; i < times.length; ++i) {
    const [from, to] = [times[i - 1], times[i]];
    const above = spans.filter((part) => part[1] <= from && to <= part[2]).map(([name]) => name);
    const cause = [...CAUSES.keys()].find((name) => above.includes(name)) ?? "training";
    if (parts.at(-1)?.[0] === cause) parts.at(-1)[2] = to;
    else parts.push([cause, from, to]);
  }
  return parts;
}

/**
 * {parts, causes, seconds, goodput}: the parts of the job's time, behind each other; of each cause
 * {cause, times, seconds}; how long that is, and which part of it (0 to 1) was not lost.
 */
export function lostTime(job) {
  const begin = job.events[0]?.kind === "started" ? job.started : job.events[0]?.time ?? job.started;
  const seconds = Math.max(0, job.now - begin);
  const parts = lineUp(lostSpans(job), begin, Math.max(begin, job.now));
  const causes = [...CAUSES.keys()].map((cause) => {
    const own = parts.filter(([name]) => name === cause);
    return { cause, times: own.length, seconds: own.reduce((sum, [, from, to]) => sum + to - from, 0) };
  }).filter(({ times }) => times > 0);
  const lost = causes.reduce((sum, one) => sum + one.seconds, 0);
  return { parts, causes, seconds, goodput: seconds > 0 ? 1 - lost / seconds : 1 };
}

/** [{step, time, ranks, folder}, ...]: of each step that was kept when the last rank had kept it. */
export function checkpointsOf(events) {
  const bySteps = new Map();
  for (const { kind, step, time, cause } of events) {
    if (kind !== "checkpoint") continue;
    const ranks = (bySteps.get(step)?.ranks ?? 0) + 1;
    bySteps.set(step, { step, time, ranks, folder: cause });
  }
  return [...bySteps.values()];
}

/** The events that tell of something that went wrong. */
export function faultsOf(events) {
  return events.filter(({ kind, cause }) =>
    FAULTS.includes(kind) || ((kind === "ended" || kind === "waiting") && cause !== null));
}
