# What one does with this repository. `make help` lists it.

SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
SAPWOOD := $(TARGET_DIR)/release/sapwood
# How long `make fuzz` runs each target.
SECONDS ?= 60

.PHONY: help demo demo-live build static deb test soak bench-tiny fuzz clean-images rust

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

demo: build ## back real disks up and restore them, and show what it takes (KEEP=1 keeps the vault)
	@tools/install-packages demo
	@images=$$(tools/make-images --small) && tools/demo --sapwood "$(SAPWOOD)" --images "$$images"

demo-live: build ## boot one of the disks in QEMU, back it up while it runs, and look at what was saved
	@tools/install-packages demo test
	@tools/live-test --sapwood "$(SAPWOOD)"

build: rust ## target/release/sapwood
	@tools/install-packages build
	cargo build --release -p sapwood

static: rust ## one binary that needs no shared library: for any Linux, and for rescue systems
	@tools/install-packages build static
	@tools/build-static

deb: static ## target/sapwood_VERSION_ARCH.deb: that binary, manual pages, completions, systemd units
	@tools/make-deb --sapwood "$$(tools/build-static)" --out "$(TARGET_DIR)"

test: rust ## everything that must hold, as CI checks it
	@tools/test

soak: rust ## the tests that need hours: more stops, rounds, places and faults
	@tools/test --soak

bench-tiny: rust ## every experiment once, with tiny parameters
	@tools/install-packages build test
	cargo build --release -p sapwood -p bench
	@tools/bench-tiny "$(TARGET_DIR)/release/bench"

fuzz: rust ## every fuzz target for SECONDS=60
	@tools/install-packages build fuzz
	@tools/fuzz --seconds "$(SECONDS)"

clean-images: ## remove the images that tools/make-images made (built again in minutes to an hour)
	@tools/clean-images

rust:
	@command -v cargo >/dev/null || { \
		echo 'Rust is missing here: install rustup, which brings cargo, open a new shell, and try again.' >&2; exit 1; }
