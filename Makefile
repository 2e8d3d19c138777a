# One verb per target; each recipe is one script. `make run DATA=file.csv FLAGS="--time-column …"` takes other prices.
.DEFAULT_GOAL := help
.PHONY: help up down status env run test nightly mutants check bench

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

up: ## PostgreSQL, Kafka and ClickHouse on loopback; installs what is missing
	@scripts/up.sh

down: ## end them; the data stays
	@scripts/stack/down

status: ## each part with process and port; fails when one is down
	@scripts/stack/status

env: ## the settings that reach them, as KEY=VALUE lines
	@scripts/stack/env

run: ## fixture and real prices, from import to two published results
	@scripts/run.sh

test: ## every test, those against the real servers included
	@scripts/test.sh

nightly: ## random cases by the thousand, and every point of the program under every fault; random faults for five minutes; 100,000 simulated seeds
	@scripts/nightly.sh

mutants: ## mistakes planted one at a time: each must be caught
	@scripts/mutants.sh

check: ## format, lints, and every test
	@scripts/check.sh

bench: ## figures, measured against the real servers
	@scripts/bench.sh
