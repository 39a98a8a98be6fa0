package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/cli"
	"github.com/prun-suite/prun/pkg/session"
)

const varModels = "DELEGATE_MODELS_FILE"

// shipped are the profiles where no file says otherwise; config/models.env holds the same.
const shipped = `DELEGATE_MODEL_TERRA=gpt-5.6-terra
DELEGATE_EFFORT_TERRA=high
DELEGATE_MODEL_LUNA=gpt-5.6-luna
DELEGATE_EFFORT_LUNA=high
DELEGATE_MODEL_SOL=gpt-5.6-sol
DELEGATE_EFFORT_SOL=high
DELEGATE_MUSE_MODEL_SPARK=muse-spark-1.2-contributor
DELEGATE_MUSE_EFFORT_SPARK=high
`

// modelsFile is the file of profiles, "" when there is none.
func modelsFile(env *cli.Env) string {
	if name := env.Getenv(varModels); name != "" {
		return name
	}
	if self, err := os.Executable(); err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			name := filepath.Join(filepath.Dir(filepath.Dir(self)), "config", "models.env")
			if fi, err := os.Stat(name); err == nil && fi.Mode().IsRegular() {
				return name
			}
		}
	}
	return ""
}

// profiles reads the file of profiles, or those that come with the program when there is none.
func profiles(env *cli.Env) map[string]string {
	if name := modelsFile(env); name != "" {
		if text, err := atomicfile.ReadRegular(name, 1<<20); err == nil {
			return session.Assignments(text)
		}
	}
	return session.Assignments([]byte(shipped))
}

const defaultProfile = "terra"

// resolve finds model and effort of a backend by its rules for profiles.
func resolve(env *cli.Env, backend, profile, model, effort string) (string, string, error) {
	lookup := func(kind, name, none string) (string, string, error) {
		set := profiles(env)
		upper := strings.ToUpper(name)
		if model == "" {
			if model = set[kind+"MODEL_"+upper]; model == "" {
				return "", "", say(exitUsage, none, name)
			}
		}
		if effort == "" {
			if effort = set[kind+"EFFORT_"+upper]; effort == "" {
				effort = "high"
			}
		}
		return model, effort, nil
	}
	switch backend {
	case "codex", "pi":
		if !slices.Contains([]string{"terra", "luna", "sol"}, profile) {
			return "", "", say(exitUsage, "%s profile must be one of terra, luna, sol", backend)
		}
		return lookup("DELEGATE_", profile, "no model configured for profile %s")
	case "muse":
		if profile == defaultProfile {
			profile = "spark"
		}
		if profile != "spark" {
			return "", "", say(exitUsage, "muse profile must be one of spark")
		}
		return lookup("DELEGATE_MUSE_", profile, "no muse model configured for profile %s")
	}
	if profile != defaultProfile {
		return "", "", say(exitUsage, "--profile resolves a model only for codex and muse; pass --model for --backend %s", backend)
	}
	return model, effort, nil
}
