// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/cmd/internal/cli"
	"github.com/collage-tvm/collage/cmd/internal/compile"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/declared"
	"github.com/collage-tvm/collage/pass/dropin"
	"github.com/collage-tvm/collage/pass/userbackend"
)

// registrations are what makes Collage known to TVM, in order: each may use what those before it registered.
var registrations = []func() error{
	bridge.RegisterDiagnostics,
	builtin.RegisterAll,
	pass.Register,
	dropin.Register,
	userbackend.Register,
	declared.Register,
	compile.Register,
	cli.Register,
}
