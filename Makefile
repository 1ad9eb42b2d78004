# Two commands: `make run` shows the shipped model answering, `make test` checks everything. Both install what is missing.

BUILD ?= build
JOBS ?= $(shell nproc)

.PHONY: all run test tests install-dependencies install-test-dependencies configure format tidy clean

all: configure
	ninja -C $(BUILD) -j $(JOBS) gannet

run: all
	BUILD=$(BUILD) scripts/run_nano.sh

test: install-test-dependencies configure
	ninja -C $(BUILD) -j $(JOBS)
	BUILD=$(BUILD) scripts/run_tests.sh

configure: install-dependencies
	cmake --preset release -B $(BUILD) -Wno-dev --log-level=WARNING

install-dependencies:
	scripts/install_dependencies.sh

install-test-dependencies:
	scripts/install_dependencies.sh --tests

format:
	git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs $(or $(shell command -v clang-format-19),clang-format) -i

tidy: configure
	git ls-files 'src/*.cc' | xargs -P $(JOBS) -n 4 $(or $(shell command -v clang-tidy-19),clang-tidy) -p $(BUILD) --quiet

clean:
	rm -rf $(BUILD)
