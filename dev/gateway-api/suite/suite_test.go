// Package suite is the official conformance suite of the Gateway API as a program of its own.
//
// The suite is a library: its tests, their manifests and its flags come from the module that go.mod
// names, unchanged. `dev/setup gateway-api` compiles this package to .cache/gateway-api/suite, and
// dev/gateway-api-conformance runs it with the suite's own flags.
package suite

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

// TestConformance runs the suite with the options of the command line (-help lists them).
func TestConformance(t *testing.T) {
	conformance.RunConformance(t)
}
