// Package eval measures what a model knows: faithful ports of the evaluators of upstream's llama-perplexity
// (perplexity, KL divergence, HellaSwag, Winogrande, multiple choice), on the context of this project's engine.
//
// Every evaluator is made in two steps. New... reads, checks and tokenises its input and says which context it needs;
// Run evaluates, calls back for every finished item, and skips items that a checkpoint already has. Write... prints
// the finished items: upstream's lines, and JSON lines with what upstream keeps to itself (docs/format/output.md).
// Tasks are packed into batches as upstream packs them, and batches cut into physical ones as upstream cuts them, by the
// options alone, so that a run continued from a checkpoint gives the very figures of one that was not interrupted: what was
// not finished of a batch is evaluated with the whole of it. Another packing changes rounding only: below 1e-5 nats where
// all is computed in float32, but up to some 1e-4 where activations are rounded to float16 or less. Chunks of a text are
// decoded one after the other, or so many as fill a physical batch, where upstream decodes parts of several chunks at once. Even
// by the kernels of upstream's order, in which sums depend on the batch, that gives the same figures where the parts have a
// multiple of 64 tokens: for contexts of a multiple of 512, except for the last three chunks if three are left over for the last
// batch of four. Batches of recurrent models upstream cuts in another way.
//
// # Winogrande
//
// Upstream scores only the words behind the blank if both sentences go on for more than three tokens after they differ;
// otherwise it scores from the first token that differs. In that second case it takes the probability of the second
// sentence's first token from the logits after the last token of the first sentence, instead of those after the common
// beginning. Both rules are always recorded: upstream's, defect included, so that scores can be compared with published
// ones, and the corrected one; TaskOptions.Corrected says which of them is the result. Where both sentences end with the
// blank upstream divides by zero; here the choice itself is scored then.
//
// Upstream drops the last newline of a file, and then skips a last row of a Winogrande file that has none: a file must
// end in an empty line to count whole. By upstream's rule this is followed, with a warning; by the corrected rule all rows
// count.
//
// The package quotes CSV fields by the standard, prints no progress, opens no files and decides nothing about models.
package eval
