// SPDX-License-Identifier: Apache-2.0

package region

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/byoc"
)

// OpError is an Emitter's error about one of the Program's Ops, by its index.
type OpError struct {
	Op  int
	Err error
}

// Error is that of Err.
func (e *OpError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *OpError) Unwrap() error { return e.Err }

// Refused says that the code generator of a compiler made nothing of the program: a byoc.GeneratorError about the
// operator that an OpError in err names, else about the first.
func (p *Program) Refused(compiler string, err error) error {
	refused := &byoc.GeneratorError{Err: fmt.Errorf("region %s: %w", p.Symbol, err)}
	index, composite := 0, ""
	if about := (*OpError)(nil); errors.As(err, &about) {
		index = about.Op
	}
	if index < len(p.Ops) {
		op := &p.Ops[index]
		refused.Operator, refused.Span = op.Name, p.Graph.Nodes[op.Node].Span
		if op.CompositeIndex >= 0 {
			composite = p.Composites[op.CompositeIndex]
		}
	}
	refused.Backend = byoc.BackendOf(compiler, composite)
	return refused
}
