// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each of these runs a thousand times with handles left to Go's collector, and a thousand times released by
// hand; afterwards the counts are where they were.
func TestNothingLeaks(t *testing.T) {
	steps := map[string]func(t *testing.T, release bool){
		"objects": func(t *testing.T, release bool) {
			a, err := NewArray(1, "two", []any{3, map[string]any{"four": 4.5}})
			require.NoError(t, err)
			items, err := a.Items()
			require.NoError(t, err)
			if release {
				a.Release()
				for _, v := range items {
					v.Release()
				}
			}
		},
		"functions": func(t *testing.T, release bool) {
			fn, err := GetGlobalFunction("runtime.Array")
			require.NoError(t, err)
			if release {
				fn.Release()
			}
		},
		"closures": func(t *testing.T, release bool) {
			fn, err := NewFunction(func(args []Value) (any, error) { return args, nil })
			require.NoError(t, err)
			v, err := fn.Invoke(fn, 1, func([]Value) (any, error) { return nil, nil })
			require.NoError(t, err)
			if release {
				fn.Release()
				v.Release()
			}
		},
		"ndarrays": func(t *testing.T, release bool) {
			a, err := FromSlice([]float32{1, 2, 3, 4}, 2, 2)
			require.NoError(t, err)
			v, err := a.View([]int64{2}, []int64{2}, 0)
			require.NoError(t, err)
			if release {
				v.Release()
				a.Release()
			}
		},
		"errors": func(t *testing.T, release bool) {
			_, err := Global("runtime.ArrayGetItem", "no array", 0)
			require.Error(t, err)
			fn, err := NewFunction(func([]Value) (any, error) { return nil, errors.New("ValueError: no") })
			require.NoError(t, err)
			_, err = fn.Invoke([]string{"temporary"}, func([]Value) (any, error) { return nil, nil })
			require.Error(t, err)
			if release {
				fn.Release()
			}
		},
		"arguments that cannot be encoded": func(t *testing.T, _ bool) {
			_, err := Global("runtime.Array", []string{"made"}, func([]Value) (any, error) { return nil, nil },
				struct{}{})
			require.Error(t, err)
		},
		"registration": func(t *testing.T, _ bool) {
			for range 2 {
				require.NoError(t, RegisterFunction("collage.test.leak", true,
					func([]Value) (any, error) { return nil, nil }))
			}
			_, err := Global("collage.test.leak", 1)
			require.NoError(t, err)
			require.NoError(t, RemoveGlobalFunction("collage.test.leak"))
		},
	}
	for name, step := range steps {
		for _, release := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, release %v", name, release), func(t *testing.T) {
				needTVM(t) // compares the counts at the end
				for range 1000 {
					step(t, release)
				}
			})
		}
	}
}
