// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"errors"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/plan"
)

// Partition places the operators of a module on backends. The module must have gone through Normalise (or at least
// through InferType). It is not changed; the new module has the regions as functions of their own. Functions that
// have a Compiler attribute, and what they hold, are left as they are.
//
// On an error the module is nil; costs that were measured before it are in the store.
func Partition(mod *bridge.Object, cfg Config) (*bridge.Object, *plan.Plan, error) {
	return nil, nil, errors.New("pass: Partition is being written")
}

// Normalise gives the module the form that candidates are looked for in: types inferred, training-only operators
// removed, constants folded, scales folded into convolutions, functions that nothing calls removed. The module that
// comes in is not changed.
func Normalise(mod *bridge.Object, opts NormaliseOptions) (*bridge.Object, error) {
	return nil, errors.New("pass: Normalise is being written")
}

// Register registers the packed functions collage.transform.* and collage.partition, and the options collage.* of
// PassContext. TVM must be loaded. It is idempotent.
func Register() error {
	return errors.New("pass: Register is being written")
}
