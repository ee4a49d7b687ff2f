// Package realmodels has no code. Its tests hold the engine, the tokenizers and the evaluators against upstream on two real
// models that `make models` fetches, SmolLM2-135M-Instruct (llama, Q4_1) and Gemma 3 270M (gemma3, Q4_K_M), and on the data
// sets of the shared conformance data. Where either is absent the tests skip.
//
// The ordinary tests take the beginning of everything; ATTNBUDGET_FULL=1 takes all of it, and with -update writes
// docs/conformance-real-models.md. What upstream gave is in testdata; its README says how it was made.
package realmodels
