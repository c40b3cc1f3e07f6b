// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/candidate"
)

// opPatterns remembers TOpPattern by operator name: it is fixed for the life of the process.
var opPatterns sync.Map // string -> candidate.OpPattern

// opPattern is TVM's fusion pattern of an operator; candidate.Opaque where it has none.
func opPattern(op string) candidate.OpPattern {
	if p, ok := opPatterns.Load(op); ok {
		return p.(candidate.OpPattern)
	}
	pattern := candidate.Opaque
	if v, err := bridge.Global("ir.GetOp", op); err == nil {
		if o, err := v.Object(); err == nil {
			if v, err := bridge.Global("ir.OpGetAttr", o, "TOpPattern"); err == nil {
				if n, err := v.Int(); err == nil {
					pattern = candidate.OpPattern(n)
				}
			}
			o.Release()
		}
	}
	opPatterns.Store(op, pattern)
	return pattern
}
