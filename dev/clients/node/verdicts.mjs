// How a client program reports its results: one line of JSON per check.

import assert from "node:assert/strict";

/** Runs a check and reports its verdict. A failed check does not end the others. */
export async function check(name, run) {
  const began = performance.now();
  const verdict = { check: name };
  try {
    await run();
  } catch (problem) {
    console.error(problem);
    const cause = problem.error ?? problem.cause?.message;
    verdict.fault = [problem.message, cause].filter(Boolean).map(String).join(": ").replace(/\s+/g, " ").slice(0, 500);
  }
  verdict.seconds = (performance.now() - began) / 1000;
  console.log(JSON.stringify(verdict));
}

/** Fails unless two values are equal. */
export function equal(what, found, wanted) {
  assert.deepEqual(found, wanted, `${what} is ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
}

/** Fails unless a promise is rejected, with an error of this `code` or this OAuth `error`. */
export async function refused(what, promise, error) {
  const found = await promise.then(
    () => "no error",
    (problem) => problem.error ?? problem.code ?? problem.message,
  );
  equal(what, found, error);
}
