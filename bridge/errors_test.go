// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorsFromGo(t *testing.T) {
	needTVM(t)
	call := func(err error) *Error {
		fn, e := NewFunction(func([]Value) (any, error) { return nil, err })
		require.NoError(t, e)
		defer fn.Release()
		_, e = fn.Invoke()
		var out *Error
		require.ErrorAs(t, e, &out)
		return out
	}
	e := call(errors.New("ValueError: the kernel is too large"))
	require.Equal(t, "ValueError", e.Class)
	require.Equal(t, "the kernel is too large", e.Message)
	require.False(t, e.Python())
	e = call(errors.New("plain text"))
	require.Equal(t, "TVMError", e.Class)
	require.Equal(t, "plain text", e.Message)
	e = call(fmt.Errorf("line one\nline two"))
	require.Equal(t, "line one\nline two", e.Message)

	// Through two borders it is still the same error.
	inner := call(errors.New("KeyError: 'x'"))
	outer := call(inner)
	require.Equal(t, "KeyError: 'x'", outer.Error())
	wrapped := call(fmt.Errorf("while reading main: %w", inner))
	require.Equal(t, "while reading main: KeyError: 'x'", wrapped.Message)
}

func TestErrorsFromTVM(t *testing.T) {
	needTVM(t)
	list, err := NewArray(1)
	require.NoError(t, err)
	_, err = Global("runtime.ArrayGetItem", list, 5)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "InternalError", e.Class)
	require.Equal(t, "Check failed: static_cast<size_t>(i) < n->size() (5 vs. 1) : out of bound of array", e.Message)
	require.Contains(t, e.Full, "container.cc")
	_, err = Global("runtime.ModuleGetTypeKey", list)
	require.ErrorAs(t, err, &e)
	require.Contains(t, e.Message, "expected ModuleHandle but got Object")
}

func TestPanicsBecomeErrors(t *testing.T) {
	needTVM(t)
	for _, f := range []func([]Value) (any, error){
		func([]Value) (any, error) { panic("on purpose") },
		func(args []Value) (any, error) { return args[10], nil },
		func([]Value) (any, error) { var o *Object; return o.typeIndex, nil },
	} {
		fn, err := NewFunction(f)
		require.NoError(t, err)
		_, err = fn.Invoke()
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "InternalError", e.Class)
		require.Contains(t, e.Message, "panic in a Go function")
		fn.Release()
	}
}

func TestResultsThatTVMCannotTake(t *testing.T) {
	needTVM(t)
	fn, err := NewFunction(func([]Value) (any, error) { return struct{}{}, nil })
	require.NoError(t, err)
	defer fn.Release()
	_, err = fn.Invoke()
	require.EqualError(t, err, "TVMError: result: TypeError: a struct {} cannot be given to TVM")
}

func TestSplitMessage(t *testing.T) {
	for _, c := range []struct{ full, class, message string }{
		{"ValueError: no", "ValueError", "no"},
		{"no class here", "TVMError", "no class here"},
		{"tvm.error.OpNotImplemented: x", "OpNotImplemented", "x"},
		{"tvm.error.OpError: x", "OpError", "x"},
		{"Traceback (most recent call last):\n  3: a\n  0: b\n  File \"/src/x.cc\", line 12\nTypeError: bad\n",
			"TypeError",
			"bad"},
		{"[10:11:12] /src/ir.cc:77: InternalError: Check failed: (x) is false: why\nStack trace:\n  0: f\n",
			"InternalError",
			"Check failed: (x) is false: why"},
		{"Traceback (most recent call last):\n  1: f\n\n  File \"/src/y.cc\", line 3\nTVMError: \n" +
			"---------------------------------------------------------------\n" +
			"An error occurred during the execution of TVM.\n" +
			"For more information, please see: https://tvm.apache.org/docs/errors.html\n" +
			"---------------------------------------------------------------\n  Check failed: (a == b) is false: ",
			"TVMError",
			"Check failed: (a == b) is false:"},
	} {
		class, message := splitMessage(c.full)
		require.Equal(t, c.class, class, c.full)
		require.Equal(t, c.message, message, c.full)
	}
}

func TestSignalsWithoutPython(t *testing.T) {
	require.NoError(t, CheckSignals())
	require.ErrorIs(t, &Error{Class: "KeyboardInterrupt"}, ErrInterrupted)
	require.NotErrorIs(t, &Error{Class: "ValueError"}, ErrInterrupted)
}

type reporting struct {
	text string
	said Exception
}

func (r *reporting) Error() string        { return r.text }
func (r *reporting) Exception() Exception { return r.said }

func TestReportedTakesTheOutermostOfEachField(t *testing.T) {
	inner := &reporting{"inner", Exception{Class: "ModelError", Backend: "dnnl", Span: "conv1"}}
	outer := With(fmt.Errorf("outer: %w", inner), Exception{Class: "PlanError", Operator: "nn.conv2d"})
	require.Equal(t, "outer: inner", outer.Error())
	require.ErrorIs(t, outer, inner)
	require.Equal(t, Exception{Class: "PlanError", Operator: "nn.conv2d", Backend: "dnnl", Span: "conv1"},
		Reported(fmt.Errorf("ValueError: %w", outer)))
	require.Equal(t, inner.said, Reported(errors.Join(errors.New("first"), inner)))
	require.Equal(t, Exception{}, Reported(errors.New("plain")))
	require.Equal(t, Exception{}, Reported(nil))
}
