// SPDX-License-Identifier: Apache-2.0

package region

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// A code generator's error knows the operator that the emitter names, however deep, else the first.
func TestRefused(t *testing.T) {
	g := &relay.Graph{Nodes: []relay.Node{{}, {Span: relay.Span{Source: "conv1", Line: 3, Column: 4}}}}
	p := &Program{Symbol: "region_0", Graph: g, Ops: []Op{{Name: "nn.relu", CompositeIndex: -1},
		{Name: "nn.conv2d", Node: 1, CompositeIndex: -1}}}
	first := p.Refused("nobody", errors.New("it is odd"))
	assert.EqualError(t, first,
		"ValueError: the code generator of the backend nobody, at nn.relu: region region_0: it is odd")
	named := p.Refused("nobody", fmt.Errorf("lowering: %w", &OpError{Op: 1, Err: errors.New("no kernel")}))
	said := bridge.Exception{Class: "BackendError", Backend: "nobody", Operator: "nn.conv2d", Span: "conv1:3:4"}
	assert.Equal(t, said, bridge.Reported(named))
	assert.ErrorContains(t, named, "at nn.conv2d (conv1:3:4): region region_0: lowering: no kernel")
}
