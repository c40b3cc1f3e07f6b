// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPythonFromEnvironment(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python")
	t.Setenv(PythonEnv, python)
	_, err := Python()
	assert.ErrorContains(t, err, "COLLAGE_PYTHON is "+python+", which cannot be run")

	require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\n"), 0o755))
	got, err := Python()
	require.NoError(t, err)
	assert.Equal(t, python, got)
}

func TestProbePython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on the PATH")
	}
	site := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(site, "tvm"), 0o755))
	// The package must not be imported: it would print, and end the interpreter.
	require.NoError(t, os.WriteFile(filepath.Join(site, "tvm", "__init__.py"), []byte("raise SystemExit('imported')"),
		0o644))
	t.Setenv("PYTHONPATH", site)
	packages, err := ProbePython(t.Context(), python)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(site, "tvm"), packages.TVM)
	assert.Regexp(t, `^3\.\d+`, packages.Version)

	t.Setenv(PythonEnv, python)
	_, err = TVMRuntime(t.Context(), "")
	assert.ErrorContains(t, err, "libtvm_runtime.so was not found in "+packages.TVM)
	library := filepath.Join(site, "tvm", runtimeLibrary)
	require.NoError(t, os.WriteFile(library, nil, 0o644))
	got, err := TVMRuntime(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, library, got)
}

func TestProbeOfSomethingElse(t *testing.T) {
	script := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho broken >&2; exit 3\n"), 0o755))
	_, err := ProbePython(t.Context(), script)
	assert.ErrorContains(t, err, "does not work as a Python interpreter: broken")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho hello\n"), 0o755))
	_, err = ProbePython(t.Context(), script)
	assert.ErrorContains(t, err, `it printed "hello\n"`)
}

func TestTVMRuntimeAsGiven(t *testing.T) {
	folder := t.TempDir()
	library := filepath.Join(folder, runtimeLibrary)
	_, err := TVMRuntime(t.Context(), library)
	assert.EqualError(t, err, "--tvm-runtime: there is no file "+library)
	_, err = TVMRuntime(t.Context(), folder)
	assert.ErrorContains(t, err, "holds no libtvm_runtime.so")

	require.NoError(t, os.WriteFile(library, nil, 0o644))
	for _, given := range []string{library, folder} {
		got, err := TVMRuntime(t.Context(), given)
		require.NoError(t, err)
		assert.Equal(t, library, got)
	}
	t.Setenv(RuntimeEnv, folder+"/absent")
	_, err = TVMRuntime(t.Context(), "")
	assert.EqualError(t, err, "COLLAGE_TVM_RUNTIME: there is no file "+folder+"/absent")
}
