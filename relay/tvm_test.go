// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
)

func read(t testing.TB, mod *bridge.Object) *Module {
	t.Helper()
	m, err := Read(mod)
	require.NoError(t, err)
	return m
}

// programs are Relay texts with all kinds of expressions that front ends produce.
var programs = map[string]string{
	"conv": `def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]);
  %1 = nn.batch_norm(%0, ones(shape=[4], dtype="float32"), zeros(shape=[4], dtype="float32"), zeros(shape=[4], dtype="float32"), ones(shape=[4], dtype="float32"));
  %2 = %1.0;
  %3 = nn.relu(%2);
  %4 = (%3, %2);
  concatenate(%4, axis=1)
}`,
	"any": `def @main(%x: Tensor[(?, 4), float32], %n: Tensor[(2), int64]) {
  %0 = nn.softmax(%x);
  (%0, dyn.reshape(%0, %n, newshape=[]))
}`,
	"if": `def @main(%c: bool, %x: Tensor[(4), float32]) {
  %0 = tanh(%x);
  if (%c) {
    add(%0, exp(%x))
  } else {
    %1 = sigmoid(%0);
    if (%c) { sqrt(%1) } else { %0 }
  }
}`,
	"let": `def @main(%x: Tensor[(4), float32]) {
  let %a = exp(%x);
  let %b = add(%a, %x);
  let %f = fn (%y: Tensor[(4), float32]) -> Tensor[(4), float32] { multiply(%y, %b) };
  %f(%f(%a))
}`,
	"ref": `def @main(%x: Tensor[(4), float32]) {
  let %r = ref(%x);
  let %u = ref_write(%r, tanh(ref_read(%r)));
  ref_read(%r)
}`,
	"functions": `def @main(%x: Tensor[(4), float32]) {
  %0 = fn (%p: Tensor[(4), float32], Composite="dnnl.relu_add", PartitionedFromPattern="nn.relu_add_") -> Tensor[(4), float32] {
    %1 = nn.relu(%p);
    add(%1, %p)
  };
  %2 = %0(@helper(%x));
  @helper(%2)
}
def @helper(%x: Tensor[(4), float32], Inline=1) -> Tensor[(4), float32] { nn.relu(add(%x, 2.5f)) }`,
	"adt": `type Pair[A, B] { MkPair(A, B), Nothing, }
def @first(%p: Pair[Tensor[(4), float32], Tensor[(2), int32]], %d: Tensor[(4), float32]) -> Tensor[(4), float32] {
  match? (%p) {
    MkPair(%a, _) => tanh(%a),
    Nothing => %d,
  }
}
def @main(%x: Tensor[(4), float32], %y: Tensor[(2), int32]) {
  @first(MkPair(%x, %y), exp(%x))
}`,
	"recursion": `def @main(%n: int32, %x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  if (equal(%n, 0)) { %x } else { @main(subtract(%n, 1), tanh(%x)) }
}`,
}
