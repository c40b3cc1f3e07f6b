// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"sync"

	"github.com/collage-tvm/collage/bridge"
)

// opPatterns remembers TOpPattern by operator name: it is fixed for the life of the process.
var opPatterns sync.Map // string -> OpPattern

// RegisteredPattern is TVM's fusion pattern of an operator; Opaque where it has none. TVM must be loaded.
func RegisteredPattern(op string) OpPattern {
	if p, ok := opPatterns.Load(op); ok {
		return p.(OpPattern)
	}
	pattern := Opaque
	if v, err := bridge.Global("ir.GetOp", op); err == nil {
		if o, err := v.Object(); err == nil {
			if v, err := bridge.Global("ir.OpGetAttr", o, "TOpPattern"); err == nil {
				if n, err := v.Int(); err == nil {
					pattern = OpPattern(n)
				}
			}
			o.Release()
		}
	}
	opPatterns.Store(op, pattern)
	return pattern
}
