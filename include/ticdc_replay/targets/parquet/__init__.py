"""Windows as Parquet below a URI, for lakes and engines that read files.

    <uri>/<pipeline>/changelog/schema=…/table=…/version=…/window=<from>-<to>/run=<run_hash>/<file>.parquet
    <uri>/<pipeline>/fold/schema=…/table=…/version=…/window=<from>-<to>/run=<run_hash>/<file>.parquet
    <uri>/<pipeline>/current/schema=…/table=…/window=<from>-<to>.json
    <uri>/<pipeline>/loads/window=<from>-<to>/run=<run_hash>.json
    <uri>/<pipeline>/generations/window=<from>-<to>.json

The first two hold rows in the changelog's layout. The fold has the last version of each row of the window, deletes included
(``_op`` delete): what brings a table from its state before the window to its state after it. Tables without key have no fold.

Rows and names of the files follow from the changelog alone, and each file appears whole or not at all: a repeat replaces
files by the same. Which files a window *has* is said by lists: ``current`` has those of one table, from the run that was
loaded last, and is replaced in one step; ``loads`` has what one run left, and is written last. A file that no list names is
not there for a reader.

An older run's load may still be under way when a newer run's has ended. So a load first leaves its mark in ``generations``, and
replaces an entry of ``current`` only under the condition that nobody else has done so meanwhile, and that the entry has no newer
generation. The mark names the tables that the load has: a newer run that has nothing of one leaves an entry without files.

``target`` is the target, ``files`` its tasks, ``entries`` the lists and all names, ``lists`` their replacement;
``redriven`` and ``repeats`` add what comes out of a window's quarantine.
"""
