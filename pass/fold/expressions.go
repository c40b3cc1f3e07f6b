// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// Expressions folds one expression after the other, as a front end makes them, each of those before. What was read and
// evaluated once is not looked at again. It is safe for concurrent use.
type Expressions struct {
	mu   sync.Mutex
	read *relay.Expressions
	f    *folder
}

// NewExpressions begins with no expression. What is folded stays in memory until Release.
func NewExpressions() *Expressions {
	read := relay.NewExpressions()
	f := newFolder(read.Graph())
	f.typeOf, f.stepwise = read.Type, true
	return &Expressions{read: read, f: f}
}

// Release gives back what was read and made.
func (e *Expressions) Release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.f.release()
	e.read.Release()
}

// Fold gives an expression like expr with constants for what can be evaluated; it is the very same where there is
// nothing. left says that TVM's FoldConstant might find more in what was not read before. The result belongs to e.
func (e *Expressions) Fold(expr *bridge.Object) (folded *bridge.Object, left bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, err := e.read.Add(expr)
	if err != nil {
		return nil, false, err
	}
	before := e.f.left
	if err := e.f.run(false); err != nil {
		return nil, false, err
	}
	folded, err = e.f.r.Expr(id)
	return folded, e.f.left > before, err
}

// Learn takes notice of an expression that TVM has folded: what is no constant in it will never be one.
func (e *Expressions) Learn(expr *bridge.Object) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.read.Add(expr); err != nil {
		return err
	}
	return e.f.run(true)
}
