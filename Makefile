# Targets: make help. Needs go, make, git, sh, coreutils; dist also tar. ALL is what has files for GOOS (./... leaves testdata out).
GO ?= go
PREFIX ?= /usr/local
FUZZTIME ?= 20s
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
TAGS := forceposix
TOOLS := $(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go)))
EXE := $(shell $(GO) env GOEXE)
BUILD := CGO_ENABLED=0 $(GO) build -tags $(TAGS) -trimpath
CCOMP := $(firstword $(foreach c,gcc clang cc,$(shell command -v $(c) 2>/dev/null)))
RACE := $(if $(CCOMP),CGO_ENABLED=1,CGO_ENABLED=0)
LIB = $(DESTDIR)$(PREFIX)
ALL = $$($(GO) list -e -tags $(TAGS) -f '{{if or .GoFiles .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... $(addprefix ./,$(patsubst %/,%,$(sort $(dir $(wildcard testdata/*/*.go))))))
ifeq ($(HOME),)
export GOCACHE ?= $(CURDIR)/build/gocache
export GOPATH ?= $(CURDIR)/build/gopath
endif
.PHONY: all build test test-windows vet man completions install install-shims demo demo-lanes e2e bench soak fuzz dist clean help
all: build
help:
	@echo "all build test test-windows vet man completions install[PREFIX,DESTDIR] install-shims[DIR] demo demo-lanes e2e bench soak[SOAK] fuzz[FUZZTIME] dist clean"
build:
	@mkdir -p build
	$(BUILD) -o bin/ $(TOOLS:%=./cmd/%)
test:
	@mkdir -p build && rm -f build/unmet
	@command -v setsid >/dev/null || $(BUILD) -o build/tools/ ./testdata/setsid
	@echo "test: $(if $(CCOMP),with the race detector ($(CCOMP)),no C compiler found: without the race detector)"
	$(RACE) PATH="$$PATH:$(CURDIR)/build/tools" PRUN_TEST_UNMET="$(CURDIR)/build/unmet" $(GO) test $(if $(CCOMP),-race) -tags $(TAGS) -count=1 $(TESTFLAGS) $(ALL); \
	  s=$$?; if [ -s build/unmet ]; then cat build/unmet; fi; exit $$s
vet:
	for os in linux windows darwin; do export GOOS=$$os CGO_ENABLED=0; $(GO) vet -tags $(TAGS) $(ALL) || exit 1; done
man: build
	for t in $(TOOLS); do bin/$$t$(EXE) __man >build/$$t.1 && mv build/$$t.1 man/$$t.1 || exit 1; done
completions: build
	for t in $(TOOLS); do for s in bash zsh fish; do bin/$$t$(EXE) __completion $$s >build/$$t.$$s || exit 1; done; done
install: build completions
	install -d $(LIB)/bin $(LIB)/libexec/prun-shims $(addprefix $(LIB)/share/,man/man1 man/man5 man/man7 \
	  bash-completion/completions zsh/site-functions fish/vendor_completions.d)
	install -m 755 $(TOOLS:%=bin/%$(EXE)) $(LIB)/bin/
	install -m 755 shims/* $(LIB)/libexec/prun-shims/
	for n in 1 5 7; do for f in man/*.$$n; do [ ! -e $$f ] || install -m 644 $$f $(LIB)/share/man/man$$n/ || exit 1; done; done
	for t in $(TOOLS); do install -m 644 build/$$t.bash $(LIB)/share/bash-completion/completions/$$t && \
	  install -m 644 build/$$t.zsh $(LIB)/share/zsh/site-functions/_$$t && \
	  install -m 644 build/$$t.fish $(LIB)/share/fish/vendor_completions.d/$$t.fish || exit 1; done
install-shims:
	$(if $(DIR),,$(error usage: make install-shims DIR=/path/to/scripts))install -d "$(DIR)" && install -m 755 shims/* "$(DIR)/"
demo demo-lanes: build
	PATH="$(CURDIR)/bin:$$PATH" sh testdata/demo/$@.sh
test-windows:
	$(GO) run -tags $(TAGS) ./testdata/wine
e2e bench soak: build
	PATH="$(CURDIR)/bin:$$PATH" $(GO) run -tags $(TAGS) ./testdata/$@ $(if $(filter soak,$@),$(SOAK))
fuzz:
	@for p in $$(grep -rl '^func Fuzz' --include='*_test.go' pkg cmd | sed 's,^,./,;s,/[^/]*$$,,' | sort -u); do $(GO) test -tags $(TAGS) -list '^Fuzz' $$p | while read -r f rest; do case $$f in Fuzz*) \
	  echo "$$p $$f"; $(GO) test -tags $(TAGS) -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p </dev/null || exit 1;; esac; done || exit 1; done
dist: man
	set -e; for p in $(PLATFORMS); do d=prun-$${p%/*}-$${p#*/}; rm -rf dist/$$d; mkdir -p dist/$$d/bin; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(BUILD) -o dist/$$d/bin/ $(TOOLS:%=./cmd/%); cp -R shims man LICENSE $(wildcard README.md CHANGELOG.md) dist/$$d/; \
	  tar -C dist --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf dist/$$d.tar.gz $$d; rm -rf dist/$$d; done; cd dist; sha256sum *.tar.gz >SHA256SUMS
clean:
	rm -rf bin build dist
