// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/cmd/internal/deployment"
	"github.com/collage-tvm/collage/cmd/internal/runmodel"
)

// MainFunction is the packed function through which the Python host runs the command line: its arguments are
// the command line's (strings, without the program's name), its result is the exit code.
const MainFunction = "collage.Main"

// Register registers MainFunction and what Python needs to load models. TVM must be loaded. It is called by libcollage
// when that is loaded.
func Register() error {
	if err := errors.Join(runmodel.Register(), deployment.Register()); err != nil {
		return err
	}
	return bridge.RegisterFunction(MainFunction, false, func(values []bridge.Value) (any, error) {
		args := make([]string, len(values))
		for i, value := range values {
			text, err := value.Str()
			if err != nil {
				return nil, fmt.Errorf("TypeError: %s: argument %d is not a string: %w", MainFunction, i, err)
			}
			args[i] = text
		}
		return hostedMain(args), nil
	})
}
