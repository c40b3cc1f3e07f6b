// SPDX-License-Identifier: Apache-2.0

// Package relay is Relay as plain Go data: a module is read once into flat slices, everything after that is Go
// on indices, and what is decided is written back as new expressions.
//
// What comes in: a handle of a TVM IRModule (Read), or a graph made by hand (NewGraph, for tests and tools).
// What goes out: a Graph for each global function with its scopes, consumers, post-dominators, pattern
// matches and structural keys; and, in the other direction, Relay expressions, functions and modules (the New…
// functions and Rewriter).
//
// The file reader*.go, build.go and rewrite.go speak to bridge; the rest is pure Go and needs no TVM.
//
// # Reading
//
//	mod, err := relay.Read(module)             // after InferType, so that types are there
//	g := mod.Function("main")
//	for id := range g.Nodes { … }              // post-order: every node stands behind what it reads
//	g.Consumers(id), g.Reads(id), g.Placeable(id), g.ScopeRoot(id), g.PostDominators(), g.Key(…)
//
// # Matching
//
//	conv := relay.Op("nn.conv2d", relay.Wildcard(), relay.Constant())
//	bias := relay.Op("add", conv, relay.Named("bias", relay.Constant()))
//	shape := relay.Optional(bias, func(p relay.Pattern) relay.Pattern { return relay.Op("nn.relu", p) })
//	for _, m := range g.Match(shape, root) { … m.Nodes, m.Inputs, m.Constants, m.Named["bias"] }
//
// # Rewriting
//
//	r := relay.NewRewriter(g)
//	r.Replace(root, inputs, func(in []*bridge.Object) (*bridge.Object, error) { return relay.NewCall(…) })
//	fn, err := r.Function()
package relay
