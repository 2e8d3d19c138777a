-- The history of a drill: each row is written in the transaction of what it tells, so what was rolled back is not told.
CREATE FUNCTION finaz_drill.on_lease() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    hand text := CASE WHEN current_setting('finaz_drill.hand', true) = 'on' THEN 'by hand' END;
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO finaz_drill.history (what, lease, owner, epoch, fence, detail)
        VALUES ('lease deleted', OLD.name, OLD.owner, OLD.epoch, OLD.fence, hand);
        RETURN NULL;
    END IF;
    INSERT INTO finaz_drill.history (what, lease, owner, epoch, fence, until, detail)
    SELECT CASE WHEN TG_OP = 'INSERT' OR (NEW.owner, NEW.epoch, NEW.fence) <> (OLD.owner, OLD.epoch, OLD.fence) THEN 'granted'
                WHEN NEW.expires_at <= OLD.expires_at THEN 'released'
                ELSE 'renewed' END, NEW.name, NEW.owner, NEW.epoch, NEW.fence, NEW.expires_at, hand;
    RETURN NULL;
END $$;
CREATE TRIGGER drill AFTER INSERT OR UPDATE OR DELETE ON finaz.leases FOR EACH ROW EXECUTE FUNCTION finaz_drill.on_lease();

CREATE FUNCTION finaz_drill.on_stream() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO finaz_drill.history (what, lease, owner, epoch, fence, seq, detail)
    SELECT 'committed', NEW.name, l.owner, NEW.epoch, NEW.fence, NEW.seq,
           CASE WHEN current_setting('finaz_drill.hand', true) = 'on' THEN 'by hand' END
    FROM (VALUES (1)) AS one LEFT JOIN finaz.leases AS l ON l.name = NEW.name;
    RETURN NULL;
END $$;
CREATE TRIGGER drill AFTER UPDATE ON finaz.streams FOR EACH ROW
    WHEN ((NEW.epoch, NEW.fence, NEW.seq) <> (OLD.epoch, OLD.fence, OLD.seq)) EXECUTE FUNCTION finaz_drill.on_stream();

CREATE FUNCTION finaz_drill.on_refused() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO finaz_drill.history (what, lease, owner, fence, detail)
    VALUES ('refused', NEW.lease, NEW.owner, NEW.fence,
            NEW.effect || ' against ' || coalesce(NEW.current_owner || ' under fence ' || NEW.current_fence, 'no lease'));
    RETURN NULL;
END $$;
CREATE TRIGGER drill AFTER INSERT ON finaz.refused_effects FOR EACH ROW EXECUTE FUNCTION finaz_drill.on_refused();
