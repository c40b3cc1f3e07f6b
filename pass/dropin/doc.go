// SPDX-License-Identifier: Apache-2.0

// Package dropin is CollagePartition with the arguments of TVM's own prototype, tvm.relay.transform.CollagePartition.
//
// What comes in: an IRModule, a CompilationConfig (targets), pattern tables, one of TVM's CostEstimator objects, and
// the options relay.collage.* of the PassContext. What goes out: a module in which the regions of external code
// generators are functions; wherever the prototype's answer is the cheapest, it is the prototype's module, names
// included.
//
// The candidates come from the rules of pass/candidate and the choice from pass/place. The prototype is followed where
// that decides nothing but names and ties (compat.go, names.go); where its own search is at fault (it prunes without
// proof, forgets groups, and joins partitions that need each other) its answer is compared, and dropped.
package dropin
