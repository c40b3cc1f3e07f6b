// SPDX-License-Identifier: Apache-2.0

package normalise

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
)

// underPassContext runs f on one thread under a PassContext of its own, with that optimisation level and without the
// disabled passes. PassContexts are thread-local.
func underPassContext(level int, disabled []string, f func() error) error {
	return bridge.OnThread(func() (err error) {
		context, err := newPassContext(level, disabled)
		if err != nil {
			return fmt.Errorf("making a PassContext: %w", err)
		}
		defer context.Release()
		if _, err := bridge.Global("transform.EnterPassContext", context); err != nil {
			return fmt.Errorf("entering a PassContext: %w", err)
		}
		defer func() {
			if _, e := bridge.Global("transform.ExitPassContext", context); e != nil && err == nil {
				err = fmt.Errorf("leaving a PassContext: %w", e)
			}
		}()
		return f()
	})
}

func newPassContext(level int, disabled []string) (*bridge.Object, error) {
	if disabled == nil {
		disabled = []string{}
	}
	none, empty := []string{}, []any{}
	// The last four arguments (traces of a tuning interface) came with TVM 0.9.
	v, err := bridge.Global("transform.PassContext", level, none, disabled, empty, nil, empty, nil, 0, nil)
	if err != nil {
		var short error
		if v, short = bridge.Global("transform.PassContext", level, none, disabled, empty, nil); short != nil {
			return nil, err
		}
	}
	return v.Object()
}

// InferTypes gives a module the types of what is new in it.
func InferTypes(mod *bridge.Object) (*bridge.Object, error) { return runPass(mod, "InferType") }

// runPass applies one of Relay's passes, named as relay._transform names it.
func runPass(mod *bridge.Object, name string, args ...any) (*bridge.Object, error) {
	v, err := bridge.Global("relay._transform."+name, args...)
	if err != nil {
		return nil, fmt.Errorf("making TVM's pass %s: %w", name, err)
	}
	pass, err := v.Object()
	if err != nil {
		return nil, fmt.Errorf("making TVM's pass %s: %w", name, err)
	}
	defer pass.Release()
	v, err = bridge.Global("transform.RunPass", pass, mod)
	if err != nil {
		return nil, fmt.Errorf("TVM's pass %s: %w", name, err)
	}
	return v.Object()
}
