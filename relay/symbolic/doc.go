// SPDX-License-Identifier: Apache-2.0

// Package symbolic works out how large tensors are whose sizes are known only when a network runs: each dimension as an
// expression of the open dimensions of the network's inputs. TVM's types have one question mark for all of them, so that
// nothing in a type says that two dimensions are the same; what front ends then write to be safe (a shape that is taken
// apart, put together and given to a reshape; a broadcast to the size that a tensor has already) hides the network from
// every pattern, and cannot always be built.
//
// In: a function of Relay with types, and names of its inputs' open dimensions. Out: what is known of each node
// (Analysis), the function in the form that it would have with fixed sizes (Settle), the graph with the types that it has
// at some sizes (Analysis.Fixed), and the module with parameters of these (FixModule).
package symbolic
