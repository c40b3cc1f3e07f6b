// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/collage-tvm/collage/bridge"
)

// The packed functions that Register registers.
const (
	// DeclareFunction takes the path of a file of costs and has what it says hold in this process. It gives a number for
	// collage.costs.withdraw.
	DeclareFunction = "collage.costs.declare"
	// WithdrawFunction takes a number that collage.costs.declare gave, and ends what began there; a number that it knows nothing
	// of does nothing.
	WithdrawFunction = "collage.costs.withdraw"
)

var holding = struct {
	sync.Mutex
	last     int64
	withdraw map[int64]func()
}{withdraw: map[int64]func(){}}

// Register registers the packed functions above. TVM must be loaded; one without a compiler gets nothing.
func Register() error {
	if !bridge.HasCompiler() {
		return nil
	}
	if err := bridge.RegisterFunction(DeclareFunction, true, declare); err != nil {
		return err
	}
	return bridge.RegisterFunction(WithdrawFunction, true, withdraw)
}

func declare(args []bridge.Value) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("TypeError: %s takes the path of a file", DeclareFunction)
	}
	path, err := args[0].Str()
	if err != nil {
		return nil, err
	}
	f, err := Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bridge.With(fmt.Errorf("ValueError: %w", err), bridge.Exception{Class: "MissingFileError", File: path})
	}
	if err != nil {
		return nil, fmt.Errorf("ValueError: %w", err)
	}
	end, err := f.Declare()
	if err != nil {
		return nil, fmt.Errorf("ValueError: %w", err)
	}
	holding.Lock()
	defer holding.Unlock()
	holding.last++
	holding.withdraw[holding.last] = end
	return holding.last, nil
}

func withdraw(args []bridge.Value) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("TypeError: %s takes a number of %s", WithdrawFunction, DeclareFunction)
	}
	number, err := args[0].Int()
	if err != nil {
		return nil, err
	}
	holding.Lock()
	end := holding.withdraw[number]
	delete(holding.withdraw, number)
	holding.Unlock()
	if end != nil {
		end()
	}
	return nil, nil
}
