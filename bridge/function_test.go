// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGlobalFunctions(t *testing.T) {
	needTVM(t)
	names, err := ListGlobalFunctionNames()
	require.NoError(t, err)
	require.Contains(t, names, "runtime.Array")
	fn, err := GetGlobalFunction("runtime.Array")
	require.NoError(t, err)
	require.Equal(t, "runtime.Array", fn.Name())
	fn.Release()
	_, err = fn.Invoke()
	require.ErrorIs(t, err, ErrReleased)
	_, err = GetGlobalFunction("no.such.function")
	require.ErrorContains(t, err, "no global function no.such.function in TVM from "+LibraryPath())
	_, ok := LookupGlobalFunction("runtime.Array\x00")
	require.False(t, ok)
}

func TestRegisterFunction(t *testing.T) {
	needTVM(t)
	const name = "collage.test.register"
	one := func([]Value) (any, error) { return 1, nil }
	two := func([]Value) (any, error) { return 2, nil }
	require.NoError(t, RegisterFunction(name, false, one))
	t.Cleanup(func() { require.NoError(t, RemoveGlobalFunction(name)) })
	require.EqualError(t, RegisterFunction(name, false, two),
		"cannot register collage.test.register: there is a global function of that name already")
	v, err := Global(name)
	require.NoError(t, err)
	require.Equal(t, int64(1), v.Any())
	held, err := GetGlobalFunction(name)
	require.NoError(t, err)
	defer held.Release()

	require.NoError(t, RegisterFunction(name, true, two))
	v, err = Global(name)
	require.NoError(t, err)
	require.Equal(t, int64(2), v.Any())
	_, err = held.Invoke()
	require.ErrorContains(t, err, "the Go function collage.test.register was removed")

	require.NoError(t, RemoveGlobalFunction(name))
	_, ok := LookupGlobalFunction(name)
	require.False(t, ok)
	require.Error(t, RegisterFunction(name, false, nil))
}

func TestFunctionsAsValues(t *testing.T) {
	needTVM(t)
	// A Go function takes a Go function and gives a Go function, all through TVM.
	twice, err := NewFunction(func(args []Value) (any, error) {
		f, err := args[0].Function()
		if err != nil {
			return nil, err
		}
		return func(inner []Value) (any, error) {
			v, err := f.Invoke(inner[0])
			if err != nil {
				return nil, err
			}
			return f.Invoke(v)
		}, nil
	})
	require.NoError(t, err)
	defer twice.Release()
	v, err := twice.Invoke(func(args []Value) (any, error) {
		n, err := args[0].Int()
		return n + 1, err
	})
	require.NoError(t, err)
	plusTwo, err := v.Function()
	require.NoError(t, err)
	v, err = plusTwo.Invoke(40)
	require.NoError(t, err)
	require.Equal(t, int64(42), v.Any())
}

func TestConcurrentCalls(t *testing.T) {
	needTVM(t)
	fn := echo(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				want := fmt.Sprintf("goroutine %d, call %d", g, i)
				v, err := fn.Invoke(want)
				if err != nil || v.Any() != want {
					t.Errorf("want %q, got %v, %v", want, v, err)
					return
				}
				// The last error is thread-local: each goroutine must see its own.
				missing := fmt.Sprintf("no.function.%d.%d", g, i)
				list, err := NewArray(missing)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = Global("runtime.GetFFIString", list)
				if err == nil {
					t.Error("an Array is no String")
				}
				list.Release()
			}
		})
	}
	wg.Wait()
}

func TestRecursion(t *testing.T) {
	needTVM(t)
	var fn *Function
	fn, err := NewFunction(func(args []Value) (any, error) {
		n, err := args[0].Int()
		if err != nil || n == 0 {
			return int64(0), err
		}
		v, err := fn.Invoke(n - 1)
		if err != nil {
			return nil, err
		}
		below, err := v.Int()
		return below + n, err
	})
	require.NoError(t, err)
	defer func() { fn.Release(); fn = nil }()
	v, err := fn.Invoke(100)
	require.NoError(t, err)
	require.Equal(t, int64(5050), v.Any())
}
