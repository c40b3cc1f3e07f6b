module github.com/collage-tvm/collage

go 1.26

require (
	github.com/mattn/go-pointer v0.0.1 // indirect
	github.com/spf13/pflag v1.0.10 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)
