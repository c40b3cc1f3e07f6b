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
	index := 0
	if about := (*OpError)(nil); errors.As(err, &about) {
		index = about.Op
	}
	refused := p.at(index)
	refused.Err = fmt.Errorf("region %s: %w", p.Symbol, err)
	composite := ""
	if index < len(p.Ops) && p.Ops[index].CompositeIndex >= 0 {
		composite = p.Composites[p.Ops[index].CompositeIndex]
	}
	refused.Backend = byoc.BackendOf(compiler, composite)
	return refused
}

// at is a GeneratorError that knows only that it is about one of the Ops.
func (p *Program) at(index int) *byoc.GeneratorError {
	if index >= len(p.Ops) {
		return &byoc.GeneratorError{}
	}
	op := &p.Ops[index]
	return &byoc.GeneratorError{Operator: op.Name, Span: p.Graph.Nodes[op.Node].Span}
}

// Origin says in messages what a backend's code is for: "BACKEND, at OPERATOR (SPAN)" of the first operator.
func (p *Program) Origin(backend string) string {
	of := p.at(0)
	of.Backend = backend
	return of.Place()
}
