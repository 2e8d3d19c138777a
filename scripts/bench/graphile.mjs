// graphile-worker as a process that does nothing with each job. DATABASE_URL says where; run in the folder of its node_modules.
//   graphile.mjs migrate    lays out its tables and ends
//   graphile.mjs work       waits for a line on stdin, then works until stdin ends. Says "ready", then "working".
// BATCHED=1 is its fastest setting for throughput: a local queue of 500 and batched completion. Otherwise each job is taken
// and completed by itself, which is its fastest setting for one job on an idle system.
// The jobs are added, timed and looked for by the harness, with the same client that does it for finaz.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const { Logger, run, runMigrations } = createRequire(`${process.cwd()}/here.js`)('graphile-worker');
const connectionString = process.env.DATABASE_URL;
const silent = new Logger(() => () => {});
const concurrentJobs = 24;
const batched = {
  localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

async function work() {
  const lines = createInterface({ input: process.stdin });
  const ended = new Promise((resolve) => lines.once('close', resolve));
  const told = new Promise((resolve) => lines.once('line', resolve));
  console.log('ready');
  await Promise.race([told, ended]);
  const worker = {
    connectionString,
    concurrentJobs,
    maxPoolSize: concurrentJobs + 1,
    logger: silent,
    ...(process.env.BATCHED === '1' ? batched : {}),
  };
  const runner = await run({ preset: { worker }, taskList: { noop: () => {} }, noHandleSignals: true });
  console.log('working');
  await ended;
  await runner.stop();
}

if (process.argv[2] === 'migrate') await runMigrations({ connectionString, logger: silent });
else await work();
process.exit(0);
