// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What crossing the border costs. Read with -benchmem.

func BenchmarkCallWithIntegers(b *testing.B) {
	needTVM(b)
	fn, err := GetGlobalFunction("runtime.GetDeviceAttr")
	require.NoError(b, err)
	defer fn.Release()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fn.Invoke(1, 0, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGlobalByName(b *testing.B) {
	needTVM(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Global("runtime.GetDeviceAttr", 1, 0, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCallWithString(b *testing.B) {
	needTVM(b)
	b.ReportAllocs()
	for b.Loop() {
		v, err := Global("runtime.String", "a string of middle length")
		if err != nil || v.Kind() != KindString {
			b.Fatal(v, err)
		}
	}
}

func BenchmarkMakeArray(b *testing.B) {
	needTVM(b)
	b.ReportAllocs()
	for b.Loop() {
		a, err := NewArray(1, 2, 3, 4)
		if err != nil {
			b.Fatal(err)
		}
		a.Release()
	}
}

func BenchmarkArrayAt(b *testing.B) {
	needTVM(b)
	inner, err := NewArray()
	require.NoError(b, err)
	a, err := NewArray(inner, inner)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		o, err := a.ObjectAt(1)
		if err != nil {
			b.Fatal(err)
		}
		o.Release()
	}
}

func BenchmarkInts(b *testing.B) {
	needTVM(b)
	a, err := NewArray(1, 3, 224, 224)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := a.Ints(-1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAttr(b *testing.B) {
	needCompiler(b)
	v, err := Global("relay.ir.Var", "x", nil, nil)
	require.NoError(b, err)
	x, err := v.Object()
	require.NoError(b, err)
	id, err := x.AttrObject("vid")
	require.NoError(b, err)
	for _, c := range []struct {
		name, attr string
		object     *Object
	}{{"object", "vid", x}, {"nil", "span", x}, {"string", "name_hint", id}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v, err := c.object.Attr(c.attr)
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
			}
		})
	}
}

func BenchmarkCallback(b *testing.B) {
	needTVM(b)
	fn, err := NewFunction(func(args []Value) (any, error) { return args[0], nil })
	require.NoError(b, err)
	defer fn.Release()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fn.Invoke(7); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCallbackWithObject(b *testing.B) {
	needTVM(b)
	fn, err := NewFunction(func(args []Value) (any, error) { args[0].Release(); return nil, nil })
	require.NoError(b, err)
	defer fn.Release()
	a, err := NewArray()
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fn.Invoke(a); err != nil {
			b.Fatal(err)
		}
	}
}
