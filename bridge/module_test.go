// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A library as TVM's code generators make them: a packed C function that adds its two
// arguments.
const addSource = `
#include <stdint.h>
typedef union { int64_t i; double f; void* p; } value;
int add(value* args, int* codes, int n, value* out, int* code, void* self) {
  if (n != 2) return -1;
  out->i = args[0].i + args[1].i;
  *code = 0;
  return 0;
}
`

func TestModule(t *testing.T) {
	needTVM(t)
	cc, err := exec.LookPath("cc")
	require.NoError(t, err, "cgo needs a C compiler, and so does this test")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "add.c"), []byte(addSource), 0o666))
	path := filepath.Join(dir, "add.so")
	out, err := exec.Command(cc, "-shared", "-fPIC", "-o", path, filepath.Join(dir, "add.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)

	mod, err := LoadModuleFromFile(path, "")
	require.NoError(t, err)
	defer mod.Release()
	require.Equal(t, "library", mod.TypeKey())
	add, err := mod.GetFunction("add", false)
	require.NoError(t, err)
	v, err := add.Invoke(40, 2)
	require.NoError(t, err)
	require.Equal(t, int64(42), v.Any())
	_, err = mod.GetFunction("subtract", true)
	require.EqualError(t, err, "AttributeError: the module (library) has no function subtract")

	other, err := LoadModuleFromFile(path, "so")
	require.NoError(t, err)
	defer other.Release()
	require.NoError(t, mod.Import(other))
	imports, err := mod.Imports()
	require.NoError(t, err)
	require.Len(t, imports, 1)
	require.Equal(t, "library", imports[0].TypeKey())

	// A module as argument and result.
	v, err = echo(t).Invoke(mod)
	require.NoError(t, err)
	same, err := v.Module()
	require.NoError(t, err)
	require.Equal(t, "library", same.TypeKey())

	_, err = LoadModuleFromFile(filepath.Join(dir, "absent.so"), "")
	require.ErrorContains(t, err, "absent.so")
	_, err = LoadModuleFromFile(filepath.Join(dir, "add.c"), "")
	require.Error(t, err)
}

func TestSaveModule(t *testing.T) {
	needCompiler(t)
	v, err := Global("runtime.CSourceModuleCreate", "int one(void) { return 1; }\n", "c", []string{"one"}, nil)
	require.NoError(t, err)
	mod, err := v.Module()
	require.NoError(t, err)
	require.Equal(t, "c", mod.TypeKey())
	source, err := mod.Source("c")
	require.NoError(t, err)
	require.Contains(t, source, "int one(void)")
	path := filepath.Join(t.TempDir(), "one.c")
	require.NoError(t, mod.Save(path, "c"))
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, source, string(saved))
}
